"""A node's heap: what a step frees, the next one takes again.

A backward pass frees and allocates megabytes. By default glibc gives such pieces back to
the system and gets them anew, a page fault for every 4 KB: 8,200 a step of CifarNet, 19
of its 98 ms of processor time; with this, 35 faults and 92 ms. Few arenas, as gRPC's
threads would otherwise hold on to chunks in one each.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as malloc.h has them
_LARGEST_FROM_HEAP = 32 << 20  # bytes; glibc allows no more. Larger pieces are whole vectors


def keep_heap() -> None:
    """For the rest of this process; nothing, where the C library is another."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_TRIM_THRESHOLD, 512 << 20)
        mallopt(_ARENA_MAX, 2)
