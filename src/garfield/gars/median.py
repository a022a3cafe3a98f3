"""Median: per coordinate, the middle value of the n rows.

Of an even count, the mean of the middle two (thesis, equation 3.3). Each
coordinate of the result lies between values that honest rows sent.

Needs n >= 2f + 1. Costs O(n log² n · d) comparisons, in one pass over memory.
Yin et al., ICML 2018; thesis 3.3.1.
"""

from garfield.core.types import Vector
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "median",
    needs=lambda f: 2 * f + 1,
    variance_ratio=lambda n, f: float(n - f) ** 0.5,
    masks=True,
    cost="O(n log² n · d)",
    choose="n is small, coordinates may be missing, or models rather than gradients are joined",
)
def median(rows: Rows, *, f: int) -> Vector:
    return rows.median()
