"""Min-max and min-sum: as far from the honest mean as an honest row might be.

    lie = μ + γ p,   γ the largest for which

    min-max    max_i |lie − x_i|  <=  max_ij |x_i − x_j|
    min-sum    Σ_i |lie − x_i|²   <=  max_i Σ_j |x_i − x_j|²

The direction p is −σ ("std", the default), −μ/|μ| ("unit") or −sign(μ) ("sign").
The paper finds γ by bisection; both bounds are quadratics in γ, so here it is

    min-max    min_i of the larger root of |p|² γ² − 2 ⟨p, x_i − μ⟩ γ + |x_i − μ|² = R²
    min-sum    max_i |x_i − μ| / |p|, since Σ_j |x_i − x_j|² = h |x_i − μ|² + Σ_j |x_j − μ|²

The attacker knows all honest rows, but not the rule. Costs O(h² d) and O(h d).
Shejwalkar and Houmansadr, NDSS 2021.
"""

from __future__ import annotations

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import learnable_rows, mean_and_std, spread_along, sq_dists
from garfield.attacks.view import View
from garfield.core.errors import UnknownName
from garfield.core.types import Floats, Matrix

_DIRECTIONS = ("std", "unit", "sign")


def _known_direction(direction: str) -> None:
    if direction not in _DIRECTIONS:
        raise UnknownName("a direction of min-max and min-sum", str(direction), _DIRECTIONS)


@attack("min-max", knows="all", limits=_known_direction, unanimous=True)
def min_max(view: View, *, direction: str = "std") -> Floats:
    rows = learnable_rows(view)
    mean, p = _mean_and_direction(rows, direction)
    along, away = spread_along(rows, mean, p)
    room = np.maximum(sq_dists(rows).max() - away, 0.0)  # (h,) R² − |x_i − μ|²
    roots = along + np.sqrt(along**2 + (p @ p) * room)  # (h,) |p|² γ_i
    return _moved(mean, p, float(roots.min()), float(p @ p))


@attack("min-sum", knows="all", limits=_known_direction, unanimous=True)
def min_sum(view: View, *, direction: str = "std") -> Floats:
    rows = learnable_rows(view)
    mean, p = _mean_and_direction(rows, direction)
    _, away = spread_along(rows, mean, p)
    return _moved(mean, p, float(np.sqrt(away.max())), float(np.sqrt(p @ p)))


def _mean_and_direction(rows: Floats, direction: str) -> tuple[Matrix, Matrix]:
    mean, std = mean_and_std(rows)
    if direction == "std":
        return mean, -std
    if direction == "sign":
        return mean, -np.sign(mean)
    length = float(np.sqrt(mean @ mean))
    return mean, -mean / length if length > 0 else np.zeros_like(mean)


def _moved(mean: Matrix, p: Matrix, far: float, per: float) -> Floats:
    """μ + (far / per) p; rows all alike, or a mean of zero, leave no direction to go."""
    return mean + (far / per) * p if per > 0 else mean
