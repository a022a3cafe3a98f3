"""Geometric median: the point whose summed distance to all rows is smallest.

    argmin_z Σ_i |x_i − z|,   by Weiszfeld's iteration  w_i ∝ 1 / max(ν, |x_i − z|)

smoothed so that a row which meets z does not take all the weight; ν is a
fraction `nu` of the radius of the tightest majority, so the rule scales. The
iteration runs on the (n, n) distances until no weight moves by `tolerance`.

Needs n >= 2f + 1. Costs O(n² d). Weiszfeld, 1937; Pillutla et al., 2022 ("RFA").
"""

from typing import Annotated

import numpy as np

from garfield.core.bounds import Within
from garfield.gars.choice import Choice, weigh
from garfield.gars.rule import gar
from garfield.kernels import Rows
from garfield.kernels.algebra import pull_in, sq_dists_to_mean, tightest_ball


@gar(
    "geometric-median",
    needs=lambda f: 2 * f + 1,
    selects=True,
    cost="O(n² d)",
    choose="no row should be dropped outright: everybody is heard, nobody loudly",
)
def geometric_median(
    rows: Rows,
    *,
    f: int,
    nu: Annotated[float, Within(0, above=True)] = 1e-3,
    tolerance: Annotated[float, Within(0)] = 1e-7,
    iterations: Annotated[int, Within(1)] = 200,
) -> Choice:
    centre, sq_radius = tightest_ball(rows.sq_dists(), rows.n // 2 + 1)
    scale = sq_radius**0.5
    if scale == 0.0:  # most rows are one and the same: so is their median
        return weigh(rows, np.eye(rows.n)[centre])
    rows = pull_in(rows, centre, scale)
    dists = rows.sq_dists()
    weights = np.full(rows.n, 1.0 / rows.n)
    for _ in range(iterations):
        away = np.sqrt(sq_dists_to_mean(dists, weights))
        moved = 1.0 / np.maximum(away, nu * scale)
        moved /= moved.sum()
        settled = np.abs(moved - weights).max() < tolerance
        weights = moved
        if settled:
            break
    return weigh(rows, weights, scores=away)
