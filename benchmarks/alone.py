"""One measurement at a time on a machine: benchmarks that run side by side take turns.

    with alone():
        measure_one_cell()

The lock is a file, which `flock FILE COMMAND` in a shell takes too. $GARFIELD_MACHINE_LOCK names
another; empty means that it is held already, as it is for whatever is called or started inside.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE, USUAL = "GARFIELD_MACHINE_LOCK", "/tmp/garfield-machine.lock"


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine's lock; wait for it as long as another benchmark measures."""
    path = os.environ.get(VARIABLE, USUAL)
    if not path:
        yield
        return
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ[VARIABLE] = ""
        yield
    finally:
        os.environ[VARIABLE] = path
        os.close(lock)
