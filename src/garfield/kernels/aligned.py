"""Memory that starts on a line of the cache.

TensorFlow takes such memory over without a copy (DLPack), and aborts on any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LINE = 64  # bytes


def empty(count: int, dtype: npt.DTypeLike = np.float32) -> np.ndarray[Any, Any]:
    """Like np.empty, aligned."""
    size = count * np.dtype(dtype).itemsize
    raw = np.empty(size + LINE, np.uint8)
    skip = -raw.ctypes.data % LINE
    return raw[skip : skip + size].view(dtype)


def can_be_given(array: np.ndarray[Any, Any]) -> bool:
    """Whether TensorFlow may take it over."""
    return array.ctypes.data % LINE == 0 and array.flags.c_contiguous and array.flags.writeable
