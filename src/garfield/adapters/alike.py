"""Whether models of different frameworks are one model, and if not, where they part.

Two models are alike if their vectors are made of tensors of the same canonical
shapes, in the same order. Names may differ: every framework has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from garfield.core.errors import ConfigError

Layout = Sequence[tuple[str, Sequence[int]]]
"""Names and canonical shapes, in the order of the vector."""


def layout_of(adapter: Any) -> Layout | None:
    """None for an adapter that does not tell."""
    return getattr(adapter, "layout", None)


def check_alike(adapters: Mapping[str, Any]) -> None:
    """ConfigError that names the first tensor in which a model differs from the first model."""
    check_layouts({who: layout_of(adapter) for who, adapter in adapters.items()})


def check_layouts(layouts: Mapping[str, Layout | None]) -> None:
    told = {who: layout for who, layout in layouts.items() if layout is not None}
    for who in list(told)[1:]:
        first = next(iter(told))
        difference = _difference(first, told[first], who, told[who])
        if difference:
            raise ConfigError(
                f"The models of {first} and {who} differ: {difference} Write them with the same "
                "layers in the same order."
            )


def _difference(one: str, first: Layout, other: str, second: Layout) -> str:
    for place, (mine, its) in enumerate(zip_longest(first, second), start=1):
        if mine is None or its is None:
            longer, extra = (one, first) if its is None else (other, second)
            found = ", ".join(_shown(*tensor) for tensor in extra[place - 1 :])
            return f"{longer} has {len(extra) - place + 1} more tensors: {found}."
        if tuple(mine[1]) != tuple(its[1]):
            sums = [sum(prod(shape) for _, shape in layout) for layout in (first, second)]
            return (
                f"tensor {place} is {_shown(*mine)} in {one} and {_shown(*its)} in {other} "
                f"({sums[0]:,} and {sums[1]:,} numbers in all)."
            )
    return ""


def _shown(name: str, shape: Sequence[int]) -> str:
    return f"{name} {'×'.join(map(str, shape)) or 'scalar'}"
