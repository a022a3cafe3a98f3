"""Bounds of a number, declared beside it: `batch: Annotated[int, Within(1)] = 32`.

Settings (`core/config.py`) and the parameters of rules, stages, attacks and partitions
(`core/registry.py`) read them from there. A number is finite, bounds or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Within:
    """Between two numbers, which are allowed themselves unless said."""

    least: float
    most: float = math.inf
    above: bool = False
    """The least itself is too little."""
    below: bool = False
    """The most itself is too much."""

    def holds(self, value: float) -> bool:
        """Whether a number lies there."""
        low = self.least < value if self.above else self.least <= value
        return low and (value < self.most if self.below else value <= self.most)

    def __str__(self) -> str:
        if self.most < math.inf:
            exclusive = f", above {self.least}" if self.above else ""
            exclusive += f", below {self.most}" if self.below else ""
            return f"within {self.least}..{self.most}{exclusive}"
        if self.above:
            return f"above {self.least}" if self.least else "positive"
        return f"at least {self.least}"


Seed: TypeAlias = Annotated[int, Within(0, 2**63 - 1)]
"""What fixes randomness: numpy takes more, torch and wires do not."""


def check_number(name: str, value: float, bounds: Within | None = None) -> None:
    """Raise ConfigError unless a number is finite, and within its bounds."""
    if not is_finite(value) or (bounds is not None and not bounds.holds(value)):
        finite = "" if isinstance(value, int) or (bounds and bounds.most < math.inf) else "finite"
        asked = " and ".join(filter(None, (str(bounds) if bounds else "", finite)))
        raise ConfigError(f"{name} must be {asked or 'finite'}, got {shown(value)}.")


def is_number(value: Any) -> bool:
    """Whether this is a number, or the text of one."""
    if isinstance(value, bool):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def is_finite(value: Any) -> bool:
    """Whether a float can hold it: a whole number may be too large."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def shown(value: Any, most: int = 60) -> str:
    """A value as a message quotes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
