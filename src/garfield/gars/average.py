"""Average: the plain mean of all rows, what every framework does by default.

(1/n) Σ x_i, which one faulty row moves anywhere. Kept as the baseline that the
robust rules are measured against; f is ignored. Costs O(n d).
"""

import numpy as np

from garfield.core.types import Vector
from garfield.gars.rule import gar
from garfield.kernels import Rows


@gar(
    "average",
    needs=lambda f: 1,
    robust=False,
    cost="O(n d)",
    choose="nobody lies or breaks: the baseline",
)
def average(rows: Rows, *, f: int) -> Vector:
    return rows.weighted_sum(np.full(rows.n, 1.0 / rows.n), checked=False)
