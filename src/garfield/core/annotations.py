"""Values against annotations: what a parameter that was written as text may be.

`m: int | None`, `tau: float`, `seed: Seed`, `base: str | Rule`, `reference: Vector | int | None`:
text, numbers, truth values and None must be named by the annotation; a whole number will do for a
float, and numbers are finite and within their bounds (`core/bounds.py`). Other things must be of a
class that is named, unless the annotation is open, as that of a vector is.
"""

from __future__ import annotations

import types
import typing
from numbers import Integral, Real
from typing import Annotated, Any

from garfield.core.bounds import Within, check_number, is_finite, shown
from garfield.core.errors import ConfigError

_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false",
    types.NoneType: "None", Any: "a vector",
}  # fmt: skip
_LITERALS = (str, bytes, bool, int, float, complex, list, tuple, dict, set, types.NoneType)
"""What text can be read as, and no vector, rule or model is."""


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise ConfigError, with the name, unless a value fits its annotation."""
    kinds = list(_kinds(hint))
    for kind, bounds in kinds:
        if kind in (int, float) and _is_number(value, kind):
            check_number(name, value, bounds)
            return
    if not any(_fits(value, kind) for kind, _ in kinds):
        asked = " or ".join(_WORDS.get(k, getattr(k, "__name__", str(k))) for k, _ in kinds)
        raise ConfigError(f"{name} must be {asked}, got {shown(value)}.")


def _kinds(hint: Any, bounds: Within | None = None) -> typing.Iterator[tuple[Any, Within | None]]:
    """The members of a union, each with the bounds that stand beside it."""
    if typing.get_origin(hint) is Annotated:
        inner, *notes = typing.get_args(hint)
        yield from _kinds(inner, next((n for n in notes if isinstance(n, Within)), bounds))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _kinds(member, bounds)
    else:
        yield hint, bounds


def _is_number(value: Any, kind: type) -> bool:
    wanted = Integral if kind is int else Real
    if isinstance(value, bool) or not isinstance(value, wanted):
        return False
    return kind is int or not isinstance(value, int) or is_finite(value)


def _fits(value: Any, kind: Any) -> bool:
    if kind in (int, float):
        return False  # numbers were looked at before
    if isinstance(kind, type) and kind is not Any:
        return isinstance(value, kind)
    return not _can_be_said(value)  # open: anything that text cannot say


def _can_be_said(value: Any) -> bool:
    """Whether text can be read as it: a list of arrays, say, is no literal."""
    if isinstance(value, (list, tuple, set)):
        return all(map(_can_be_said, value))
    if isinstance(value, dict):
        return all(map(_can_be_said, value.values()))
    return isinstance(value, _LITERALS)
