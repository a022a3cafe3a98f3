"""Loss without sockets: any transport, behind links that lose blocks of what is pulled.

For simulation. The blocks are those that `transport.py` sends on one host,
lost by the same generator and filled by the same code; nothing takes time here,
so no time-out is ever met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from garfield.transport.contract import Holes, Key, Payload, Replies, Source, Transport, Until
from garfield.transport.datagrams.filling import Filler
from garfield.transport.datagrams.links import Counts, LossyLinks
from garfield.transport.datagrams.packets import HOST_BLOCK, blocks_of, most_at_once, nothing_came
from garfield.transport.datagrams.windows import missing_after


class LossyWrapper:
    """One node's transport, some of whose links are lossy."""

    def __init__(self, transport: Transport, links: LossyLinks) -> None:
        self.name = transport.name
        self._transport = transport
        self._links = links
        self._filler = Filler(transport.name, links)
        self._counts = Counts()

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._transport, attribute)  # its count of bytes

    def serve(self, source: Source) -> None:
        self._transport.serve(source)

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        replies = self._transport.pull(peers, key, length=length, until=until, timeout_s=timeout_s)
        rows = dict(zip(replies.names, replies.rows, strict=True))
        silent, holes = dict(replies.silent), dict(replies.holes)
        for peer in replies.names:
            if not self._links.between(self.name, peer, key.kind):
                continue
            again, blocks = self._counts.again(peer, key), blocks_of(length, HOST_BLOCK)
            dropped = self._links.dropped((self.name, peer), key, blocks, again)
            lost = missing_after(dropped, most_at_once(HOST_BLOCK))
            if lost.all():
                silent[peer] = nothing_came(len(lost))
                del rows[peer]
                continue
            found = Holes(lost, HOST_BLOCK)
            rows[peer] = self._damaged(rows[peer], peer, key, found)
            if lost.any():
                holes[peer] = found
        names = tuple(sorted(rows))
        kept = tuple(rows[name] for name in names)
        return replace(replies, names=names, rows=kept, silent=silent, holes=holes)

    def _damaged(self, row: Payload, peer: str, key: Key, holes: Holes) -> Payload:
        row = np.array(row)
        self._filler.complete(peer, key, row, holes)
        row.flags.writeable = False
        return row

    def close(self) -> None:
        self._transport.close()
