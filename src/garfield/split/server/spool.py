"""What was computed and not taken yet, on disk: a slow client keeps no worker.

An answer goes to disk once it is ahead of its client by more than its buffer in memory. All of a
server's answers share so much disk; where that is full, or the disk itself is, a worker waits for
its client as it would without. Files have no names, so nothing stays behind, however a server ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from garfield.split.server.room import Room


class Spool(Room):
    """Room on disk for all answers of a server together."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self._directory = directory

    def answer(self) -> SpooledAnswer:
        """A place for one answer; nothing is on disk before something is put there."""
        return SpooledAnswer(self)

    def opened(self) -> IO[bytes]:
        """A file without a name."""
        return tempfile.TemporaryFile(dir=self._directory, buffering=0)


@dataclass(frozen=True)
class Part:
    """Bytes of an answer that are on disk."""

    descriptor: int
    offset: int
    length: int

    def pieces(self, most: int) -> Iterator[memoryview]:
        """All of them, so many at a time."""
        end = self.offset + self.length
        for lo in range(self.offset, end, most):
            yield memoryview(os.pread(self.descriptor, min(most, end - lo), lo))


class SpooledAnswer:
    """What one answer has on disk, until it is closed."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._file: IO[bytes] | None = None
        self._length = 0
        self._closed = False

    def added(self, content: bytes) -> Part | None:
        """Write bytes behind those that are there; None if there is no room for them."""
        if self._closed or not self._spool.took(len(content)):
            return None
        try:
            if self._file is None:
                self._file = self._spool.opened()
            descriptor, left = self._file.fileno(), memoryview(content)
            while left:
                left = left[os.pwrite(descriptor, left, self._length + len(content) - len(left)) :]
        except OSError:  # the disk is full: as much as was promised is not there
            self._spool.give_back(len(content))
            return None
        part = Part(descriptor, self._length, len(content))
        self._length += len(content)
        return part

    def close(self) -> None:
        """Free the disk; nothing may be read any more."""
        if self._file is not None:
            self._file.close()
        self._spool.give_back(self._length)
        self._file, self._length, self._closed = None, 0, True
