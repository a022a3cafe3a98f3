"""Loss without sockets: any transport, behind links that lose blocks of what is pulled.

For simulation. The blocks are those that `carrier.py` sends on one host, lost by
the same generator and filled by the same code; nothing takes time here, so no
time-out is ever met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from garfield.core.types import Flags
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Holes,
    Key,
    Payload,
    Replies,
    Transport,
    Until,
    WrappedTransport,
)
from garfield.transport.datagrams.filling import Filler
from garfield.transport.datagrams.links import LossyLinks, Repeats
from garfield.transport.datagrams.packets import HOST_BLOCK, blocks_of, most_at_once, nothing_came
from garfield.transport.datagrams.windows import missing_after


class LossyTransport(WrappedTransport):
    """One node's transport, some of whose links are lossy."""

    def __init__(self, inner: Transport, links: LossyLinks) -> None:
        super().__init__(inner)
        self._links = links
        self._filler = Filler(inner.name, links)
        self._repeats = Repeats()

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        replies = self.inner.pull(peers, key, length=length, until=until, timeout_s=timeout_s)
        collector = ReplyCollector(peers, key, length, until)
        rows, holes = dict(zip(replies.names, replies.rows, strict=True)), dict(replies.holes)
        for peer in replies.names:
            if not self._links.between(self.name, peer, key.kind):
                continue
            lost = self._lost(peer, key, length)
            if lost.all():
                collector.fail(peer, nothing_came(len(lost)))
                del rows[peer]
                continue
            found = Holes(lost, HOST_BLOCK)
            rows[peer] = self._damaged(rows[peer], peer, key, found)
            if lost.any():
                holes[peer] = found
        left = replace(replies, names=tuple(rows), rows=tuple(rows.values()), holes=holes)
        collector.absorb(left)
        return collector.replies(timeout_s, replies.silent)

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
