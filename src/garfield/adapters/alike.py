"""Whether models of different frameworks are one model, and if not, where they part.

Two models are alike if their vectors are made of tensors of the same canonical
shapes, in the same order. Names may differ: every framework has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import prod

from garfield.adapters.contract import Layout
from garfield.core.errors import ConfigError


def check_alike(layouts: Mapping[str, Layout]) -> None:
    """ConfigError that names the first tensor in which a model differs from the first model."""
    for who in list(layouts)[1:]:
        first = next(iter(layouts))
        difference = _difference(first, layouts[first], who, layouts[who])
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
