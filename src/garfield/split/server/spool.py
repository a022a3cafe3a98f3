"""What was computed and not taken yet, on disk: a slow client keeps no worker.

An answer goes to disk once it is ahead of its client by more than its buffer in memory. All of a
server's answers share so much disk, and whoever holds their seats has a part of it at most; where
that is full, or the disk itself is, a worker waits for its client as it would without. An answer
is cut into files that are freed as they are read. They have no names, so nothing stays behind,
however a server ends.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from garfield.split.server.seats import Holder, Seat

SEGMENT = 64 << 20
"""Bytes of an answer that are freed together."""
SHARES = 4
"""One of so many is all that a holder of seats may have."""


class Spool:
    """Room on disk for all answers of a server together. Belongs to one event loop."""

    def __init__(self, directory: Path, most_bytes: int, left_free: int = 0) -> None:
        """`left_free` are bytes of the disk that are not ours to fill, whatever else is there."""
        self._directory, self._most, self._left_free = directory, most_bytes, left_free
        self._held: Counter[Holder] = Counter()

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def answer(self, seat: Seat) -> SpooledAnswer:
        """A place for one answer; nothing is on disk before something is put there."""
        return SpooledAnswer(self, seat)

    def took(self, count: int, holder: Holder) -> bool:
        """Take room for so many bytes; False if there is not as much, or not for this holder."""
        if self.held_bytes + count > self._most:
            return False
        if self._held[holder] + count > self._most // SHARES:
            return False
        disk = os.statvfs(self._directory)
        if disk.f_bavail * disk.f_frsize < count + self._left_free:
            return False
        self._held[holder] += count
        return True

    def give_back(self, count: int, holder: Holder) -> None:
        self._held[holder] -= count
        if not self._held[holder]:
            del self._held[holder]

    def opened(self) -> IO[bytes]:
        """A file without a name."""
        return tempfile.TemporaryFile(dir=self._directory, buffering=0)


class _Segment:
    """One file of an answer."""

    def __init__(self, file: IO[bytes], holder: Holder) -> None:
        self.file, self.holder = file, holder
        self.length = 0
        self.unread = 0
        """Parts of it that nobody has read to the end."""

    def write(self, content: bytes) -> int:
        """Add bytes, and say where they begin."""
        left, begin = memoryview(content), self.length
        while left:
            at = begin + len(content) - len(left)
            left = left[os.pwrite(self.file.fileno(), left, at) :]
        self.length += len(content)
        self.unread += 1
        return begin


@dataclass(frozen=True)
class Part:
    """Bytes of an answer that are on disk. They are read once."""

    answer: SpooledAnswer
    segment: _Segment
    offset: int
    length: int

    def pieces(self, most: int) -> Iterator[memoryview]:
        """All of them, so many at a time."""
        end = self.offset + self.length
        for lo in range(self.offset, end, most):
            yield memoryview(os.pread(self.segment.file.fileno(), min(most, end - lo), lo))
        self.answer.was_read(self.segment)


class SpooledAnswer:
    """What one answer has on disk, until it is read, or closed."""

    def __init__(self, spool: Spool, seat: Seat) -> None:
        self._spool, self._seat = spool, seat
        self._segments: list[_Segment] = []
        self._closed = False

    def added(self, content: bytes) -> Part | None:
        """Write bytes behind those that are there; None if there is no room for them."""
        holder = self._seat.holder
        if self._closed or not self._spool.took(len(content), holder):
            return None
        try:
            segment = self._writable(holder)
            begin = segment.write(content)
        except OSError:  # the disk is full: as much as was promised is not there
            self._spool.give_back(len(content), holder)
            return None
        return Part(self, segment, begin, len(content))

    def was_read(self, segment: _Segment) -> None:
        """A part of it was, to the end."""
        segment.unread -= 1
        if not segment.unread and not self._closed:
            self._segments.remove(segment)
            self._free(segment)

    def close(self) -> None:
        """Free the disk; nothing may be read any more."""
        for segment in self._segments:
            self._free(segment)
        self._segments, self._closed = [], True

    def _writable(self, holder: Holder) -> _Segment:
        last = self._segments[-1] if self._segments else None
        if last is None or last.length >= SEGMENT or last.holder != holder:
            last = _Segment(self._spool.opened(), holder)
            self._segments.append(last)
        return last

    def _free(self, segment: _Segment) -> None:
        segment.file.close()
        self._spool.give_back(segment.length, segment.holder)
