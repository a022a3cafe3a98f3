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

_SAME = 1e-10
"""What is left of a regressor of length 1 without the others, squared, that counts as nothing."""
_ROUNDING = 1e-9
"""Residuals, relative to |y|², that count as equal: fewer regressors are then preferred."""


def nonnegative(rows: Matrix, wanted: Matrix) -> Matrix:
    """The (k,) coefficients for (m, k) rows and (m,) wanted values.

    Of solutions that fit equally well, the one with the fewest regressors, and the earlier ones.
    """
    k = rows.shape[1]
    scale = np.sqrt((rows * rows).sum(axis=0))  # 1, n and n·b differ by orders of magnitude
    scale[scale == 0] = 1.0
    unit = rows / scale
    gram, right = (unit.T @ unit).tolist(), (unit.T @ wanted).tolist()
    best, least = np.zeros(k), float(wanted @ wanted)
    slack = _ROUNDING * least
    for count in range(1, k + 1):
        for chosen in combinations(range(k), count):
            found = _solved([[gram[i][j] for j in chosen] + [right[i]] for i in chosen])
            if found is None or min(found) < 0:
                continue
            left = wanted - unit[:, list(chosen)] @ found
            error = float(left @ left)
            if error < least - slack:
                best, least = np.zeros(k), error
                best[list(chosen)] = found
    unscaled: Matrix = best / scale
    return unscaled


def _solved(system: list[list[float]]) -> list[float] | None:
    """The solution of a few equations, right-hand sides last; None if they say the same.

    Elimination in plain Python: at this size a call of numpy takes longer than the sums. Pivots
    of a matrix of products need not be searched for.
    """
    k = len(system)
    for at in range(k):
        if system[at][at] < _SAME:
            return None
        for below in range(at + 1, k):
            factor = system[below][at] / system[at][at]
            system[below] = [b - factor * a for a, b in zip(system[at], system[below], strict=True)]
    found = [0.0] * k
    for at in reversed(range(k)):
        rest = sum(system[at][j] * found[j] for j in range(at + 1, k))
        found[at] = (system[at][k] - rest) / system[at][at]
    return found
