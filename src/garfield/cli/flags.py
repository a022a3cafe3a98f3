"""Flags of a command from settings: see `garfield.core.config`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, make_dataclass
from functools import partial, wraps
from typing import Annotated, Any

from cyclopts import Group, Parameter

from garfield.core.config import Setting


@dataclass(frozen=True)
class Flags:
    """Marks a command's parameter, a dict, that is given as one flag for each of some settings."""

    settings: Callable[[], Iterable[Setting]]
    """Asked when the command runs: files of the user's may have registered more by then."""


def spelt_out(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """The command, with flags for every parameter that is marked; those given reach it."""
    signature = inspect.signature(command)
    hints = typing.get_type_hints(command, include_extras=True)
    marked = {name: mark for name, hint in hints.items() if (mark := _mark(hint)) is not None}
    if not marked:
        return command

    @wraps(command)
    def called(**arguments: Any) -> int | None:
        for name in marked:
            flags = vars(arguments[name]) if arguments.get(name) is not None else {}
            arguments[name] = {flag: value for flag, value in flags.items() if value is not None}
        return command(**arguments)

    hints |= {name: _flattened(mark.settings()) for name, mark in marked.items()}
    parameters = [
        parameter.replace(
            annotation=hints[name], default=None if name in marked else parameter.default
        )
        for name, parameter in signature.parameters.items()
    ]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = hints
    return called


def _mark(hint: Any) -> Flags | None:
    return next(
        (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Flags)), None
    )


def _flattened(settings: Iterable[Setting]) -> Any:
    """A dataclass of flags that need no prefix; None means that a flag was not given."""
    groups: dict[str, Group] = {}
    made = []
    for setting in settings:
        title = setting.group.replace("_", " ").capitalize() or "Run"
        group = groups.setdefault(title, Group.create_ordered(title))
        kind = str if setting.kind is tuple else setting.kind  # names, with commas
        hint: Any = Annotated[kind | None, _parameter(setting, group)]
        made.append((setting.name, hint, field(default=None)))
    flags = make_dataclass("Given", made)
    flags.__module__ = __name__  # cyclopts takes a class of the standard library for one value
    return Annotated[flags, Parameter(name="*")]


def _parameter(setting: Setting, group: Group) -> Parameter:
    unset = setting.default is None or setting.default is False or setting.default == ()
    return Parameter(
        name=setting.flag,
        negative=f"--no-{setting.flag[2:]}" if setting.kind is bool else (),
        converter=None if setting.kind is bool else partial(_parsed, setting),
        help=setting.about,
        show_default=False if unset else str(setting.default),
        group=group,
    )


def _parsed(setting: Setting, kind: type, tokens: Any) -> Any:
    return setting.parsed(tokens[0].value)
