"""Loss without sockets: any transport, behind links that lose blocks of what is pulled.

For simulation. The blocks are those that `carrier.py` sends on one host, lost by
the same generator and filled by the same code; nothing takes time here, so no
time-out is ever met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from garfield.core.silence import Silence
from garfield.core.types import Flags
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Holes,
    Key,
    Payload,
    PullArguments,
    Replies,
    Transport,
    WrappedTransport,
)
from garfield.transport.datagrams.filling import Filler
from garfield.transport.datagrams.links import LossyLinks, Repeats
from garfield.transport.datagrams.packets import HOST_BLOCK, blocks_of, most_at_once, nothing_came
from garfield.transport.datagrams.windows import missing_after

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TRIES = 10
"""How often a row is asked for of which nothing comes."""


class LossyTransport(WrappedTransport):
    """One node's transport, some of whose links are lossy."""

    def __init__(self, inner: Transport, links: LossyLinks) -> None:
        super().__init__(inner)
        self._links = links
        self._filler = Filler(inner.name, links)
        self._repeats = Repeats()

    def pull(self, peers: Sequence[str], key: Key, **how: Unpack[PullArguments]) -> Replies:
        length, until = how["length"], how["until"]
        replies = super().pull(peers, key, **how)
        if key.is_newest:
            return replies  # they are not sent by datagrams
        collector, late = ReplyCollector(peers, key, length, until), replies.late
        how["until"] = collector.counted_in(until)
        why: dict[str, Silence] = {}
        for _ in range(_TRIES):
            lost = self._taken(replies, collector, key, length)
            why = {**why, **replies.silent, **lost}
            if not lost or collector.enough:
                break
            replies = super().pull([*lost], key, **how)
        return collector.replies(how["timeout_s"], why, late=late)

    def _taken(
        self, replies: Replies, collector: ReplyCollector, key: Key, length: int
    ) -> dict[str, Silence]:
        """Hand over what is left of the rows; of whose nothing is, comes back."""
        rows, holes = dict(zip(replies.names, replies.rows, strict=True)), dict(replies.holes)
        nothing: dict[str, Silence] = {}
        for peer in replies.names:
            if not self._links.between(self.name, peer, key.kind):
                continue
            lost = self._lost(peer, key, length)
            if lost.all():
                nothing[peer] = nothing_came(len(lost))
                del rows[peer]
                continue
            found = Holes(lost, HOST_BLOCK)
            rows[peer] = self._damaged(rows[peer], peer, key, found)
            if lost.any():
                holes[peer] = found
        collector.absorb(
            replace(replies, names=tuple(rows), rows=tuple(rows.values()), holes=holes)
        )
        return nothing

    def _lost(self, peer: str, key: Key, length: int) -> Flags:
        """(blocks,) those of which nothing came, however often they were asked for."""
        again, blocks = self._repeats.again(peer, key), blocks_of(length, HOST_BLOCK)
        dropped = self._links.dropped((self.name, peer), key, blocks, again)
        return missing_after(dropped, most_at_once(HOST_BLOCK))

    def _damaged(self, row: Payload, peer: str, key: Key, holes: Holes) -> Payload:
        row = np.array(row)
        self._filler.complete(peer, key, row, holes)
        row.flags.writeable = False
        return row
