"""Aksel: the mean of the ⌈n/2⌉ rows nearest the coordinate-wise median.

Needs n >= 2f + 1. Costs O(n log² n · d) comparisons, in three passes over
memory. Boussetta et al., 2021.
"""

import numpy as np

from garfield.gars.choice import Choice, average_of
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "aksel",
    needs=lambda f: 2 * f + 1,
    selects=True,
    anyway="leave some out",
    cost="O(n log² n · d)",
    choose="n is large: cost grows with n, not with n²",
)
def aksel(rows: Rows, *, f: int) -> Choice:
    median = rows.median()
    to_median = rows.sq_dists_to(median)
    nearest = np.argsort(to_median, kind="stable")[: -(-rows.n // 2)]
    return average_of(rows, np.sort(nearest), scores=to_median, out=median)
