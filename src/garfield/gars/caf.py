"""CAF: turn down the rows that stick out along the direction of largest spread.

All weights c start at one. While they sum to more than n − 2f: take the
weighted mean μ and the top eigenpair (λ, v) of the weighted covariance, and
set c_i ← c_i (1 − τ_i / max τ) with τ_i = ⟨v, x_i − μ⟩². The mean that had the
smallest λ is the answer. It needs no bound on the honest rows' covariance.

Eigenvectors are found in the (n, n) matrix of inner products, so the vectors
are read twice in all. Needs n >= 2f + 1. Costs O(n² d + n⁴).
Allouah et al., ICML 2025 (Covariance-bound Agnostic Filter).
"""

import numpy as np

from garfield.core.types import Matrix
from garfield.gars.choice import Choice, weigh
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "caf",
    needs=lambda f: 2 * f + 1,
    selects=True,
    cost="O(n² d + n⁴)",
    choose="liars hide in one direction and honest rows spread in many",
)
def caf(rows: Rows, *, f: int) -> Choice:
    dists = rows.sq_dists()
    counts = np.ones(rows.n)
    best, best_spread = counts / rows.n, np.inf
    while f > 0 and counts.sum() > rows.n - 2 * f:
        weights = counts / counts.sum()
        spread, sq_projections = _widest(dists, weights)
        if spread < best_spread:
            best, best_spread = weights, spread
        largest = sq_projections[counts > 0].max()
        if largest <= 0.0:  # nothing sticks out
            break
        counts = counts * np.clip(1.0 - sq_projections / largest, 0.0, 1.0)
    return weigh(rows, best, scores=-best)


def _widest(sq_dists: Matrix, weights: Matrix) -> tuple[float, Matrix]:
    """Top eigenvalue of the weighted covariance, and each row's squared part along it."""
    to_mean = sq_dists @ weights
    gram = to_mean[:, None] + to_mean[None, :] - sq_dists - weights @ to_mean
    gram *= 0.5  # ⟨x_i − μ, x_j − μ⟩
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(root[:, None] * gram * root[None, :])
    spread = float(values[-1])
    if spread <= 0.0:
        return 0.0, np.zeros(len(weights))
    return spread, (gram @ (root * vectors[:, -1])) ** 2 / spread
