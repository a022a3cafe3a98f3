"""Patience: whom a synchronous round waits for. A pure decision, per peer.

A peer that keeps silent is still asked but no longer waited for, so that a
crashed machine costs a time-out twice and not in every round; it earns the
wait back only by several answers in a row, so that one which alternates
between silence and answers cannot make everybody wait every other round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

SILENCES = 2
ANSWERS = 3


@dataclass
class Patience:
    """Streaks of silence and of answers, per peer."""

    peers: Collection[str]
    _streaks: dict[str, int] = field(default_factory=dict)  # > 0 answers, < 0 silences, in a row
    _given_up: set[str] = field(default_factory=set)

    def awaited(self) -> frozenset[str]:
        """The peers that a round waits for."""
        return frozenset(self.peers) - self._given_up

    def note(self, answered: Iterable[str]) -> None:
        """A round has ended, and these have answered."""
        heard = set(answered)
        for peer in self.peers:
            streak = self._streaks.get(peer, 0)
            if peer in heard:
                streak = max(streak, 0) + 1
                if streak >= ANSWERS:
                    self._given_up.discard(peer)
            else:
                streak = min(streak, 0) - 1
                if -streak >= SILENCES:
                    self._given_up.add(peer)
            self._streaks[peer] = streak
