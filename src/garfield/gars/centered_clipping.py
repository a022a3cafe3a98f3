"""Centered clipping: step from a reference towards every row, but never farther than τ.

    z ← z + (1/n) Σ_i (x_i − z) · min(1, τ / |x_i − z|),   `iterations` times from z = reference

A liar moves the result by at most τ/n a step, however far away it is. Give the
last round's aggregate as `reference`; without one the coordinate-wise median
serves. Without τ, the median of the rows' distances to the reference does.

Needs n >= 2f + 1. Costs O(n² d). Karimireddy, He and Jaggi, ICML 2021.
"""

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Matrix, Vector
from garfield.gars.choice import Choice
from garfield.gars.rule import gar
from garfield.kernels import Rows
from garfield.kernels.algebra import pull_in, sq_dists_to_mean


def _positive_tau(
    n: int, f: int, tau: float | None = None, iterations: int = 3, **_: object
) -> None:
    if tau is not None and not tau > 0:
        raise ConfigError(f"centered-clipping.tau must be positive, got {tau}.")
    if iterations < 1:
        raise ConfigError(f"centered-clipping.iterations must be at least 1, got {iterations}.")


@gar(
    "centered-clipping",
    needs=lambda f: 2 * f + 1,
    limits=_positive_tau,
    selects=True,
    cost="O(n² d)",
    choose="the default: hears all, and its worst case is the best measured",
    remembers="last aggregate",
    anyway="clip some",
)
def centered_clipping(
    rows: Rows,
    *,
    f: int,
    reference: Vector | None = None,
    tau: float | None = None,
    iterations: int = 3,
) -> Choice:
    start = rows.median() if reference is None else reference
    points = rows.with_row(start)
    away = np.sqrt(points.sq_dists()[-1, :-1])  # (n,) distances to the reference
    tau = float(np.median(away)) if tau is None else tau
    points = pull_in(points, rows.n, tau)
    weights = _clipped_steps(points.sq_dists(), tau, iterations)
    out = start if reference is None else None  # our own median may be written over
    shares = points.base_weights(weights)[:-1]
    vector = points.weighted_sum(weights, out=out)
    return Choice(vector, shares, np.flatnonzero(shares), away)


def _clipped_steps(sq_dists: Matrix, tau: float, iterations: int) -> Matrix:
    """(n + 1,) weights of the rows and, last, of the reference they start from."""
    n = len(sq_dists) - 1
    weights = np.zeros(n + 1)
    weights[-1] = 1.0
    for _ in range(iterations):
        away = np.sqrt(sq_dists_to_mean(sq_dists, weights))[:-1]
        clipped = away > tau
        shrunk = tau / np.where(clipped, away, tau or 1.0)  # at most 1: nothing can overflow
        step = np.where(clipped, shrunk, 1.0) / n
        weights *= 1.0 - step.sum() if clipped.any() else 0.0  # not the rounding of n/n
        weights[:-1] += step
    return weights
