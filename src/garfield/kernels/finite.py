"""Whether every number of a vector is finite: one pass, on the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from garfield.core.types import Floats
from garfield.kernels import _native

_KERNELS: dict[int, Callable[..., Any]] = {  # by the bytes of a number
    4: _native.non_finite_rows_f32,  # type: ignore[attr-defined]
    8: _native.non_finite_rows_f64,  # type: ignore[attr-defined]
}


def all_finite(row: Floats) -> bool:
    """Whether every number is finite: on this thread, so for a megabyte or so at a time."""
    if row.dtype.kind != "f":
        return True  # whole numbers are
    pointers = np.array([row.ctypes.data], dtype=np.intp)
    bad = np.zeros(1, dtype=np.uint8)
    _KERNELS[row.itemsize](pointers.ctypes.data, 1, 0, len(row), bad.ctypes.data)
    return not bad[0]
