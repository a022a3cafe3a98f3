"""Trimmed mean: per coordinate, the mean without the f smallest and the f largest values.

Needs n >= 2f + 1. Costs O(n log² n · d) comparisons, in one pass over memory.
Yin et al., ICML 2018.
"""

from garfield.core.types import Vector
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "trimmed-mean",
    needs=lambda f: 2 * f + 1,
    masks=True,
    cost="O(n log² n · d)",
    choose="as the median, but closer to the mean when nobody lies",
)
def trimmed_mean(rows: Rows, *, f: int) -> Vector:
    return rows.trimmed_mean(f)
