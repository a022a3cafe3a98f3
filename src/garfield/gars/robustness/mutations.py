"""Random changes of rows, small and large, for a search that keeps the ones that help."""

from __future__ import annotations

import numpy as np

from garfield.core.types import Indices, Matrix


def changed(rows: Matrix, honest: Indices, rng: np.random.Generator) -> Matrix:
    """A copy of the rows with one change, in units of the honest rows' deviation."""
    new = rows.copy()
    n, d = new.shape
    mean = new[honest].mean(axis=0)
    centred = new[honest] - mean
    spread = float(np.sqrt(np.einsum("ij,ij->", centred, centred) / centred.size)) or 1.0
    size = spread * 10 ** rng.uniform(-3, 0.5)
    others = np.setdiff1d(np.arange(n), honest)
    row = rng.integers(n)
    how = rng.integers(8)
    if how == 0:  # one row
        new[row] += size * rng.standard_normal(d)
    elif how == 1:  # one number
        new[row, rng.integers(d)] += size * rng.standard_normal()
    elif how == 2:  # two rows meet
        new[row] = new[rng.integers(n)]
    elif how == 3:  # nearer to the honest mean, or farther from it
        new[row] = mean + 10 ** rng.normal(0, 0.3) * (new[row] - mean)
    elif how == 4 and len(others):  # the liars agree, and go elsewhere
        new[others] = new[rng.choice(others)] + size * rng.standard_normal(d)
    elif how == 5:  # the honest rows draw together, or apart
        new[honest] = mean + 10 ** rng.normal(0, 0.1) * centred
    elif how == 6:  # two rows move together
        new[[row, rng.integers(n)]] += size * rng.standard_normal(d)
    else:
        new += size * rng.standard_normal(new.shape)
    return new
