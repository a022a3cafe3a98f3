"""gRPC, except for gradients on some links, which travel as datagrams that may be lost.

As AggregaThor's: a few workers send by UDP, which retransmits nothing, waits
for nothing, and lets one lost packet hold up no other. Asking, waiting for the
vector to be there, and "gone" stay on gRPC, which also hands over the key that
seals the datagrams; only the vector itself may be lost in parts. What is lost
is filled (`filling.py`), and `Replies.holes` says where. Rows of links that are
not lossy come along in the same pull, whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from garfield.transport.contract import Replies, Source, Until
from garfield.transport.datagrams.client import DatagramClient
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.datagrams.server import DatagramServer
from garfield.transport.grpc import wire
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import Peer


class LossyTransport(GrpcTransport):
    """One node's way to its peers; `links` says which of them are lossy, and is the same at all.

    The UDP port has the number of the gRPC port, unless the system chooses that one. The rest
    goes to `GrpcTransport`.
    """

    def __init__(
        self,
        name: str,
        peers: Mapping[str, Peer],
        *,
        links: LossyLinks,
        **grpc: Any,
    ) -> None:
        super().__init__(name, peers, **grpc)
        self._post: DatagramServer = DatagramServer(name, links)
        self._datagrams = self._client.datagrams = DatagramClient(name, links, self._buffers)

    @property
    def bytes_sent(self) -> int:
        return super().bytes_sent + self._post.bytes_sent

    @property
    def bytes_received(self) -> int:
        return super().bytes_received + self._datagrams.bytes_received

    # -- on the loop ----------------------------------------------------------------

    async def _serve(self, source: Source) -> str:
        self._post.open(self._listen)
        return await super()._serve(source)

    async def _shut(self) -> None:
        await super()._shut()
        self._post.close()

    async def _pull(
        self, peers: Sequence[str], request: wire.Request, until: Until, timeout_s: float
    ) -> Replies:
        kind, found = request.key.kind, self._datagrams.holes
        for peer in peers:
            found.pop((kind, peer), None)
        replies = await super()._pull(peers, request, until, timeout_s)
        holes = {name: found[kind, name] for name in replies.names if (kind, name) in found}
        return replace(replies, holes=holes)
