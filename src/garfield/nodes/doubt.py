"""Doubt: being told by no more peers than may lie that one is behind.

It may be true: where rows and such claims together are as many as can be honest, nobody else is
left to be waited for. So a node looks for newer vectors for a while, and if there are none it goes
back to waiting. Each time it waits and looks twice as long: over a slow network a short look would
start the same transfers anew for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf


@dataclass
class Doubt:
    """How one node doubts that its step is still the others'."""

    time_outs: float = 1.0
    """How many of them to wait before looking, and to look; infinity where it is of no use."""
    since: float | None = None
    """When it began; None if there is none."""

    def lasts_s(self, now: float) -> float:
        """How long it has been so far; it begins now, if there was none."""
        if self.since is None:
            self.since = now
        return now - self.since

    def was_wrong(self) -> None:
        """Nobody had anything newer, or it did not come in time."""
        self.time_outs *= 2

    def is_useless(self) -> None:
        """There are too few others to take anything from."""
        self.time_outs = inf

    def is_over(self) -> None:
        """A round has gone on."""
        self.since = None
        if not isinf(self.time_outs):
            self.time_outs = 1.0
