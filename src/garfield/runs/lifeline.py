"""Processes that end with the one that started them, however it ends.

By itself a forkserver lives as long as any process that it has forked, so that a
launcher that is killed would leave all of them behind.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
