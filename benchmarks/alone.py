"""One measurement at a time on a machine: benchmarks that run side by side take turns.

    with alone():
        measure_one_cell()

The lock is a file. $GARFIELD_MACHINE_LOCK names another; empty means that it is held already, as it
is for whatever is called or started inside. Work that need not be alone shares the machine, as

    flock FILE.turn true; flock --shared FILE COMMAND

does: a measurement that waits holds FILE.turn, so whoever comes after it lets it go first.
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
    with _locked(path, after=f"{path}.turn"):
        os.environ[VARIABLE] = ""
        try:
            yield
        finally:
            os.environ[VARIABLE] = path


@contextmanager
def _locked(path: str, after: str) -> Iterator[None]:
    """Hold the lock of one file, and only while it is waited for that of the other too."""
    turn, lock = (os.open(each, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                  for each in (after, path))  # fmt: skip
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield
    finally:
        os.close(lock)
        os.close(turn)
