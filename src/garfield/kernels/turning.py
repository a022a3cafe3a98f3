"""Turn an array's axes round while copying it: (a, b, c) into (c, b, a).

One pass over memory; numpy's own copy of a transposed array takes 5 to 20 times as
long for the sizes of dense layers, whose strides fall on the same lines of the cache.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from garfield.kernels import _native


def copy_turned(source: np.ndarray[Any, Any], order: tuple[int, ...], target: Any) -> None:
    """Copy `source`, its axes in another order, into `target`; both contiguous float32."""
    ends = _ends(source.shape, order)
    if ends is None:
        np.copyto(target, source.transpose(order))
        return
    assert source.dtype == target.dtype == np.float32
    assert source.flags.c_contiguous
    assert target.flags.c_contiguous
    _native.turned(source.ctypes.data, *ends, target.ctypes.data)


@lru_cache(maxsize=1024)
def _ends(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(a, b, c) if the order is that of axes grouped in three and turned round; None if not.

    Kernels are such cases: (space…, in, out) to (out, in, space…) and its reverse, and matrices.
    """
    rank = len(shape)
    for first in range(1, rank):  # axes in the group that goes last
        for last in range(1, rank - first + 1):  # axes in the group that comes first
            groups = (range(first), range(first, rank - last), range(rank - last, rank))
            if order == (*groups[2], *groups[1], *groups[0]):
                return tuple(prod(shape[axis] for axis in group) for group in groups)  # type: ignore[return-value]
    return None
