"""Which blocks to ask for now: windows, two at a time, none for lost blocks.

Asking for a window is a promise to have room for it: at most `IN_FLIGHT` of
them are open, so what is under way fits into a socket's buffer however slow the
reader is. A window is closed when all of it came, when its last block or one
beyond it came (links keep the order, nearly always), or when nothing more came
for a while; what it lacks then is lost, and not asked for again. Only if
*nothing* of it came has the request itself been lost, and is repeated: at once if
a later window was answered, or after that while.

It is four times the usual time from a request to its first block, within
bounds. Pure: the clock is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from garfield.core.types import Flags
from garfield.transport.datagrams.links import TRIES
from garfield.transport.datagrams.packets import Window

IN_FLIGHT = 2
_FIRST_S, _LEAST_S, _MOST_S = 0.1, 0.05, 0.5
_PATIENCE = 4.0


def partition(blocks: int, most: int) -> Iterator[Window]:
    """Windows of at most `most` blocks, nearly equal in size, so that none is tiny."""
    first = 0
    for left in range(-(-blocks // most), 0, -1):
        size = -(-(blocks - first) // left)
        yield Window(first, size)
        first += size


def missing_after(dropped: Flags, most: int) -> Flags:
    """(blocks,) what a transfer lacks in the end on a link that is else in order.

    `dropped` (TRIES, blocks) says which blocks are lost at the first, second, ... time of asking.
    """
    missing = np.empty(dropped.shape[1], np.bool_)
    for first, size in partition(len(missing), most):
        part = slice(first, first + size)
        heard = np.flatnonzero(~dropped[:, part].all(axis=1))
        missing[part] = dropped[heard[0] if len(heard) else -1, part]
    return missing


@dataclass
class _Open:
    """A window that has been asked for."""

    first: int
    count: int
    asked: float = 0.0
    tries: int = 0
    heard: float | None = None
    """When a block of it came last."""
    came: int = 0
    overtaken: bool = False
    """A later window was answered, and this one not: its first request is lost, for sure."""

    @property
    def last(self) -> int:
        return self.first + self.count - 1


@dataclass
class Windows:
    """The windows of one vector, and how each is doing."""

    left: list[Window]
    """Windows that were not asked for yet, in order."""
    _open: list[_Open] = field(default_factory=list)
    _usual_s: float | None = None

    @property
    def done(self) -> bool:
        return not self.left and not self._open

    def came(self, block: int, now: float) -> None:
        """A block that had not come before."""
        for window in self._open:
            if window.first <= block <= window.last:
                self._heard(window, now)
            window.overtaken |= block > window.last and window.tries == 1
        self._open = [window for window in self._open if not _over(window, block)]

    def due(self, now: float) -> list[Window]:
        """What to ask for now; closes windows of which nothing more is to be expected."""
        asks: list[Window] = []
        for window in list(self._open):
            if now < self._until(window):
                continue
            if window.came or window.tries >= TRIES:
                self._open.remove(window)
            else:
                asks.append(self._asked(window, now))
        while len(self._open) < IN_FLIGHT and self.left:
            window = _Open(*self.left.pop(0))
            self._open.append(window)
            asks.append(self._asked(window, now))
        return asks

    def next_s(self, now: float) -> float:
        """How long until `due` may have something to say, if nothing comes."""
        return max(0.0, min((self._until(window) for window in self._open), default=now) - now)

    def _asked(self, window: _Open, now: float) -> Window:
        window.asked = now
        window.tries += 1
        return Window(window.first, window.count)

    def _heard(self, window: _Open, now: float) -> None:
        if window.heard is None and window.tries == 1:  # of two, which one was answered?
            took = now - window.asked
            self._usual_s = took if self._usual_s is None else 0.75 * self._usual_s + 0.25 * took
        window.heard = now
        window.came += 1

    def _until(self, window: _Open) -> float:
        usual = _FIRST_S if self._usual_s is None else _PATIENCE * self._usual_s
        wait_s = min(max(usual, _LEAST_S), _MOST_S)
        if window.heard is not None:
            return window.heard + wait_s
        if window.overtaken and window.tries == 1:
            return window.asked
        return window.asked + min(wait_s * (1 << (window.tries - 1)), _MOST_S)


def _over(window: _Open, block: int) -> bool:
    """Now that this block came: is nothing more of the window to be expected?"""
    return window.came == window.count or (window.came > 0 and block >= window.last)
