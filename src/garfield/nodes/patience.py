"""Patience: for how long a node still waits for each peer, once it has rows enough without it.

Every peer has a credit of `timeout_s`, over all rounds and kinds of vectors together. Time
spent waiting for it alone is deducted. After 8 replies in time the credit is full again, after
16 more once more, after 32 more, and so on: in R rounds a peer can cost one asker

    timeout_s · (1 + log2(1 + R / 8))

seconds at most, whatever it does. Patience costs speed only: whoever is no longer waited for is
still asked, and heard when it answers in time.

A peer is *charged* when it was waited for in full, and nothing has come of it since. Where the
server is trusted, a rule may then be told that there is a fault less among the others; a peer
that answers, however late, is not charged any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

REPLIES = 8
"""So many replies in time fill a credit for the first time; twice as many for each further time."""


@dataclass
class _Standing:
    credit_s: float
    in_time: int = 0
    """Replies in time since the credit was last full."""
    refills: int = 0
    charged: bool = False


@dataclass
class Patience:
    """One node's ledger of what its peers have cost it."""

    timeout_s: float
    _peers: dict[str, _Standing] = field(init=False)

    def __post_init__(self) -> None:
        self._peers = defaultdict(lambda: _Standing(self.timeout_s))

    def credit_s(self, peer: str) -> float:
        """How long that peer is still waited for when there are rows enough without it."""
        return self._peers[peer].credit_s

    def is_charged(self, peer: str) -> bool:
        """Whether it was waited for in full, and nothing has come of it since."""
        return self._peers[peer].charged

    def answered(self, peer: str, waited_s: float = 0.0) -> None:
        """A reply was there in time, after others had been enough for so many seconds."""
        standing = self._peers[peer]
        standing.charged = False
        standing.credit_s = max(0.0, standing.credit_s - waited_s)
        standing.in_time += 1
        if standing.in_time >= REPLIES * 2**standing.refills:
            standing.credit_s, standing.in_time = self.timeout_s, 0
            standing.refills += 1

    def missed(self, peer: str, waited_s: float, *, in_full: bool) -> None:
        """A round went on without it, after waiting for it alone for so many seconds."""
        standing = self._peers[peer]
        standing.credit_s = max(0.0, standing.credit_s - waited_s)
        standing.charged = standing.charged or in_full

    def came_late(self, peers: Iterable[str]) -> None:
        """They have answered, though too late for the round that they were asked in."""
        for peer in peers:
            self._peers[peer].charged = False
