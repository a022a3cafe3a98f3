"""Directories for what only a running process needs: sockets, say. Gone when it ends, or later.

A process that is killed cannot tidy up, so the next one does: each directory holds a file that
its owner keeps locked, and the system lets go of the lock however the owner ends.

They stand where temporary files go (TMPDIR), unless that path leaves no room for a socket's: the
system allows 107 bytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "garfield-"
_LOCK = "owner.lock"
LONGEST_PLACE = 57
"""Of 107 bytes, a directory of ours takes 18, and multiprocessing in it another 32."""
_SHORT = (Path("/tmp"), Path("/var/tmp"))


def short_place(room: int = 0) -> Path:
    """Where temporary files go, if sockets can stand there `room` bytes further down; else /tmp."""
    usual = Path(tempfile.gettempdir())
    for place in (usual, *_SHORT):
        if len(os.fsencode(place)) + room <= LONGEST_PLACE and os.access(place, os.W_OK | os.X_OK):
            return place
    return usual


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory that only this user can enter; sweep those of killed processes first."""
    sweep()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=short_place()))
    try:
        being_made = directory / ".lock"
        with being_made.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            being_made.rename(directory / _LOCK)  # locked already whenever somebody else sees it
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep() -> list[Path]:
    """Remove this user's scratch directories whose owners have ended, and say which."""
    swept = []
    for directory in short_place().glob(f"{PREFIX}*"):
        with suppress(OSError):  # locked, or gone meanwhile, or somebody else's
            if directory.lstat().st_uid != os.geteuid():
                continue
            with (directory / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
                swept.append(directory)
    return swept
