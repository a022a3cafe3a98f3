"""One coordinate: hide a shift of the order of √d in a single coordinate of the honest mean.

    lie = μ + sign · γ e_c,   γ the largest that Krum still picks

Honest rows of deviation σ per coordinate lie σ √(2d) apart, and σ √d from their mean. A row at
the mean that is off by up to about σ √d in one coordinate is as near to them as they are to each
other: in a model of a million parameters, a thousand deviations. Rules that judge whole rows by
distance take it in; Bulyan, made for this, then looks at each coordinate by itself.

γ follows from Krum's scores, which the liars work out from the honest distances alone: on a
grid of 64, then by bisection. Costs O(h² d).

The attacker knows all honest rows. El Mhamdi, Guerraoui and Rouault, ICML 2018 (Bulyan).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import honest_rows, mean_of, sq_dists
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats, Matrix

_SAFE = 0.999
"""How far short of the edge to stay: a rule may round otherwise."""


def _a_coordinate(coordinate: int, sign: int) -> None:
    if coordinate < 0:
        raise ConfigError(f"one-coordinate.coordinate must be at least 0, got {coordinate}.")
    if sign not in (-1, 1):
        raise ConfigError(f"one-coordinate.sign must be 1 or -1, got {sign}.")


@attack("one-coordinate", knows="all", limits=_a_coordinate, unanimous=True)
def one_coordinate(view: View, *, coordinate: int = 0, sign: int = 1) -> Floats:
    if coordinate >= view.d:
        last = view.d - 1
        raise ConfigError(f"one-coordinate.coordinate must be within 0..{last}, got {coordinate}.")
    rows = honest_rows(view)
    lie = mean_of(rows)
    lie[coordinate] += sign * largest_shift(rows, lie, coordinate, sign, view.f)
    return lie


def largest_shift(rows: Floats, mean: Matrix, coordinate: int, sign: int, f: int) -> float:
    """The largest γ at which Krum picks f equal lies rather than an honest row; 0 if none."""
    between = sq_dists(rows)  # (h, h)
    away = np.array([np.sum((row - mean) ** 2) for row in rows])  # (h,) |x_i − μ|²
    along = sign * (rows[:, coordinate] - mean[coordinate])
    peers = max(1, len(rows) - 2)  # n − f − 2

    def picked(shift: float) -> bool:
        to_lie = away + shift**2 - 2 * shift * along  # (h,) |x_i − lie|²
        scored = _sum_smallest(np.concatenate([np.zeros(f - 1), to_lie]), peers)
        others = [
            _sum_smallest(np.concatenate([np.delete(between[i], i), np.full(f, to_lie[i])]), peers)
            for i in range(len(rows))
        ]
        return scored < min(others)

    most = 2 * float(np.sqrt(between.max()))
    return _SAFE * _last(picked, np.geomspace(1e-3 * most, most, 64)) if most > 0 else 0.0


def _sum_smallest(values: Matrix, count: int) -> float:
    return float(np.sort(values)[:count].sum())


def _last(holds: Callable[[float], bool], grid: Matrix) -> float:
    """The largest place where it holds, as the grid and a bisection after it show."""
    held = [at for at, place in enumerate(grid) if holds(float(place))]
    if not held:
        return 0.0
    low, high = float(grid[held[-1]]), float(grid[min(held[-1] + 1, len(grid) - 1)])
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
