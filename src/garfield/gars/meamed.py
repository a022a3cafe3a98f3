"""MeaMed: per coordinate, the mean of the n − f values nearest the median.

Two values equally near: the smaller one is taken.

Needs n >= 2f + 1. Costs O(n log² n · d) comparisons, in one pass over memory.
Xie, Koyejo and Gupta, 2018 ("mean around median").
"""

from garfield.core.types import Vector
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "meamed",
    needs=lambda f: 2 * f + 1,
    masks=True,
    cost="O(n log² n · d)",
    choose="per coordinate, when lies are one-sided",
)
def meamed(rows: Rows, *, f: int) -> Vector:
    return rows.mean_near_median(rows.n - f)
