"""Is every number of a vector finite? One pass of the compiled kernel, on the calling thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from garfield.kernels import _native
from garfield.transport.contract import Payload

_KERNELS: dict[int, Callable[..., Any]] = {  # by the bytes of a number
    4: _native.non_finite_rows_f32,  # type: ignore[attr-defined]
    8: _native.non_finite_rows_f64,  # type: ignore[attr-defined]
}

_PIECE = 1 << 18  # numbers: a megabyte or two, some tenths of a millisecond


def all_finite(row: Payload) -> bool:
    """For pieces of a megabyte or so; it allocates nothing and holds no thread pool."""
    pointers = np.array([row.ctypes.data], dtype=np.intp)
    bad = np.zeros(1, dtype=np.uint8)
    _KERNELS[row.itemsize](pointers.ctypes.data, 1, 0, len(row), bad.ctypes.data)
    return not bad[0]


async def all_finite_by_pieces(row: Payload) -> bool:
    """The same for long vectors, on a loop that has others to look after."""
    for lo in range(0, len(row), _PIECE):
        if not all_finite(row[lo : lo + _PIECE]):
            return False
        await asyncio.sleep(0)
    return True
