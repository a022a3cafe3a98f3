"""Is every number of a vector finite? One pass of the compiled kernel, on the calling thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from garfield.kernels import _native
from garfield.transport.contract import Payload

_flag_non_finite: Callable[..., Any] = _native.non_finite_rows_f32  # type: ignore[attr-defined]

_PIECE = 1 << 18  # numbers: a megabyte, a tenth of a millisecond


def all_finite(row: Payload) -> bool:
    """For pieces of a megabyte or so; it allocates nothing and holds no thread pool."""
    pointers = np.array([row.ctypes.data], dtype=np.intp)
    bad = np.zeros(1, dtype=np.uint8)
    _flag_non_finite(pointers.ctypes.data, 1, 0, len(row), bad.ctypes.data)
    return not bad[0]


async def all_finite_by_pieces(row: Payload) -> bool:
    """The same for long vectors, on a loop that has others to look after."""
    for lo in range(0, len(row), _PIECE):
        if not all_finite(row[lo : lo + _PIECE]):
            return False
        await asyncio.sleep(0)
    return True
