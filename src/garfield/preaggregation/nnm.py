"""Nearest-neighbour mixing: replace each row by the mean of its n − f nearest rows.

An honest row's n − f nearest are all as near as honest rows lie to each other,
so what an attacker can add to it is bounded; and mixing shrinks the spread of
honest rows that heterogeneous data cause. Itself included.

Costs O(n² d) for the distances, which the rule behind it then need not take.
Allouah et al., AISTATS 2023.
"""

import numpy as np

from garfield.kernels.algebra import mixed_sq_dists
from garfield.kernels.rows import Rows
from garfield.preaggregation.stage import stage


@stage("nnm")
def nnm(rows: Rows, *, f: int) -> Rows:
    dists = rows.sq_dists()
    nearest = np.argsort(dists, axis=1, kind="stable")[:, : rows.n - f]
    mix = np.zeros((rows.n, rows.n))
    np.put_along_axis(mix, nearest, 1.0 / (rows.n - f), axis=1)
    return rows.mixed(mix, lambda: mixed_sq_dists(dists, mix))
