"""Batch-norm statistics and other float buffers: the tail of every vector.

They are joined by their coordinate-wise median and take no part in distances:
a rule sees the bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from garfield.kernels import read
from garfield.transport.contract import Payload


def bodies(rows: Sequence[Payload | None], size: int) -> list[Payload | None]:
    """The parameters' or gradients' part of each row."""
    return [None if row is None else row[:size] for row in rows]


def median_tail(rows: Sequence[Payload | None], size: int) -> Payload:
    """The median of the rows' tails; empty where the model has no buffers."""
    tails = [row[size:] for row in rows if row is not None]
    if len(tails[0]) == 0:
        return np.empty(0, np.float32)
    return np.asarray(read(tails)[0].median(), dtype=np.float32)
