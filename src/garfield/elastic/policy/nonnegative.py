"""Least squares with coefficients that are not negative, for a handful of regressors.

min |A x − y|² with x ≥ 0, by trying every set of regressors: a solution of the constrained
problem is the plain one on the regressors that it uses, so the best feasible plain solution is
exact. With three regressors that is seven small systems, which is less work than an active-set
method (Lawson and Hanson, 1974) needs to find its way, and needs no library.

Costs O(2^k · m k²) for m rows and k regressors; refuses nothing, so keep k small.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from garfield.core.types import Matrix

_ROUNDING = 1e-9
"""Residuals, relative to |y|², that count as equal: fewer regressors are then preferred."""


def nonnegative(rows: Matrix, wanted: Matrix) -> Matrix:
    """The (k,) coefficients for (m, k) rows and (m,) wanted values.

    Of solutions that fit equally well, the one with the fewest regressors, and the earlier ones.
    """
    k = rows.shape[1]
    best, error = np.zeros(k), float(wanted @ wanted)
    slack = _ROUNDING * error
    gram, right = rows.T @ rows, rows.T @ wanted
    for count in range(1, k + 1):
        for chosen in map(list, combinations(range(k), count)):
            found = _solved(gram[np.ix_(chosen, chosen)], right[chosen])
            if found is None or (found < 0).any():
                continue
            residual = wanted - rows[:, chosen] @ found
            left = float(residual @ residual)
            if left < error - slack:
                best, error = np.zeros(k), left
                best[chosen] = found
    return best


def _solved(gram: Matrix, right: Matrix) -> Matrix | None:
    """The solution of the normal equations; None if regressors say the same."""
    scale = np.sqrt(np.diag(gram))  # to unit columns: 1, n and n·b differ by orders of magnitude
    if not scale.all():
        return None
    scaled = gram / np.outer(scale, scale)
    if np.linalg.cond(scaled) > 1e12:
        return None
    solved: Matrix = np.linalg.solve(scaled, right / scale) / scale
    return solved
