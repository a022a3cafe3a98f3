"""Strength: how loud to lie so that a known rule goes wrong the most.

    argmax over s of |defence(honest rows and f times lie(s)) − honest mean|

A rule listens to a weak lie and throws out a strong one, so in between lies a
best strength, often right before a cliff; there may be several cliffs. Half of
the trials walk the whole range, evenly on a log scale, and the others close in
on the two highest places by golden section. At most `trials` calls of the
defence, and no randomness; a peak narrower than a step of the walk may be missed.

Shejwalkar and Houmansadr, NDSS 2021, who tailor a lie to the known rule.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats, Matrix

_GOLDEN = (5**0.5 - 1) / 2


def range_makes_sense(least: float, most: float, trials: int) -> None:
    """The limits that every attack of searched strength shares."""
    if not 0 < least < most:
        raise ConfigError(f"Strengths must be 0 < least < most, got {least} and {most}.")
    if trials < 8:
        raise ConfigError(f"A search of the strength needs at least 8 trials, got {trials}.")


def strongest(
    view: View, mean: Matrix, lie: Callable[[float], Matrix], least: float, most: float, trials: int
) -> Floats:
    """The lie of the most harmful strength against view.defence."""
    if view.defence is None:
        raise ConfigError(
            "An optimal attack tunes its lie against the rule, and this view holds no defence. "
            "Pass defence=, or choose the attack of fixed strength."
        )
    assert view.honest is not None  # Attack.__call__ refuses such a view
    defence, honest = view.defence, list(view.honest)

    def damage(strength: float) -> float:
        sent = view.sendable(lie(strength))
        answer = np.asarray(defence([*honest, *[sent] * view.f]))
        gap = answer - mean
        moved = float(np.sqrt(np.einsum("i,i->", gap, gap)))  # BLAS would start threads for this
        return np.inf if np.isnan(moved) else moved  # a rule that answers NaN is beaten

    return view.sendable(lie(peak(damage, least, most, trials)))


def peak(height: Callable[[float], float], least: float, most: float, trials: int) -> float:
    """The place within least..most where the height is largest, as so many trials show."""
    tried: dict[float, float] = {}

    def at(log: float) -> float:
        if log not in tried:
            tried[log] = height(float(np.exp(log)))
        return tried[log]

    grid = np.linspace(np.log(least), np.log(most), trials // 2).tolist()
    tops = _tops([at(log) for log in grid])[:2]
    for top in tops:
        lo, hi = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        _golden_section(at, lo, hi, (trials - len(grid)) // len(tops))
    return float(np.exp(max(tried, key=lambda log: tried[log])))


def _tops(heights: list[float]) -> list[int]:
    """Places after which it goes down, and before which it did not; the highest first."""
    last = len(heights) - 1
    tops = [
        i
        for i, here in enumerate(heights)
        if (i == 0 or here >= heights[i - 1]) and (i == last or here > heights[i + 1])
    ]
    return sorted(tops, key=lambda i: -heights[i])


def _golden_section(at: Callable[[float], float], lo: float, hi: float, trials: int) -> None:
    """Look for the top between lo and hi, `at` keeping what was found."""
    left, right = hi - _GOLDEN * (hi - lo), lo + _GOLDEN * (hi - lo)
    for _ in range(trials - 1):
        if at(left) >= at(right):
            hi, right = right, left
            left = hi - _GOLDEN * (hi - lo)
        else:
            lo, left = left, right
            right = lo + _GOLDEN * (hi - lo)
