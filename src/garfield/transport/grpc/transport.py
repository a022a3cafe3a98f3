"""Nodes in processes of their own, on one host or many, by gRPC.

A transport has one thread, on which one asyncio loop answers the peers
(`server.py`) and asks them (`client.py`), so that waiting holds no thread; the
node's own thread blocks in `pull`. With credentials, both ends prove name and
role by mutual TLS. Without, names are taken on trust, and so only on loopback,
unless told otherwise in so many words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from garfield.core.errors import ConfigError, RunError
from garfield.core.silence import Reason, Silence
from garfield.transport import identity
from garfield.transport.addresses import check_listen, is_loopback
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Answerer,
    Gone,
    Key,
    Payload,
    Refused,
    Replies,
    Until,
)
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import (
    Attempt,
    Buffers,
    Carrier,
    Chunks,
    Received,
    check_finite,
)
from garfield.transport.grpc.client import Asking, GrpcClient
from garfield.transport.grpc.dialling import Dialling
from garfield.transport.grpc.links import Links
from garfield.transport.grpc.loop import LoopThread
from garfield.transport.grpc.options import NAME_KEY, grpc
from garfield.transport.grpc.server import Answering, GrpcServer, Polls
from garfield.transport.identity import Credentials, PeerAddress

_log = logging.getLogger(__name__)
"""What an operator must know. Without a handler, Python writes it to standard error."""


class GrpcTransport:
    """One node's way to its peers.

    `peers` is looked up at every attempt, so it may fill up, and addresses may change, while
    nodes come and go; whoever is not in it is not answered. `listen` is host:port (0 for a free
    one, see `address`) or unix:/path. Of `carriers`, the first that both ends want is taken;
    chunks over gRPC are always there. `garfield.transport.connect` puts one together.

    A node that nobody can call listens nowhere (None) and `dials` those who shall ask it; these
    take links (`takes_links`) from peers whose address is `DIALS_IN`. See `links.py`.
    """

    def __init__(
        self,
        name: str,
        peers: Mapping[str, PeerAddress],
        *,
        listen: str | None = "127.0.0.1:0",
        credentials: Credentials | None = None,
        insecure_ok: bool = False,
        carriers: Sequence[Carrier] = (),
        dials: Collection[str] = (),
        takes_links: bool = False,
    ) -> None:
        if credentials is not None and credentials.identity.name != name:
            owner = credentials.identity.name
            raise ConfigError(f"{name} cannot use the certificate of {owner}. Load its own.")
        if listen is None and takes_links:
            raise ConfigError(f"{name} listens nowhere, so nobody can open a link to it.")
        if listen is not None:
            check_listen(name, listen)
        is_exposed = listen is not None and not is_loopback(listen)
        if credentials is None and not insecure_ok and is_exposed:
            raise ConfigError(
                f"{name} would listen on {listen} without certificates, where anybody may claim "
                "any name. Give credentials (garfield.transport.certs), or insecure_ok=True."
            )
        self.name = name
        self._peers = peers
        self._listen = listen
        self._is_exposed = is_exposed
        self._secured = credentials is not None
        self._buffers = Buffers()
        self._carriers = (*carriers, Chunks())
        self._polls: Polls | None = None
        self._server: GrpcServer | None = None
        self._address: str | None = None
        self._server_credentials = None if credentials is None else _for_server(credentials)
        channel_credentials = None if credentials is None else _for_client(credentials)
        self._links = Links(self._may_dial) if takes_links else None
        self._client = GrpcClient(
            name, peers, channel_credentials, self._carriers, self._links, dials
        )
        self._dialling = Dialling(name, dials, self._client)
        self._asking = Asking(self._ask)
        self._loop = LoopThread(f"garfield-grpc-{name}")

    @property
    def address(self) -> str:
        """Where this node listens, for its peers to know."""
        if self._address is None:
            raise RunError(f"{self.name} has no address yet. Call serve() first.")
        return self._address

    @property
    def bytes_sent(self) -> int:
        """Bytes of vectors sent to peers so far."""
        return sum(carrier.bytes_sent for carrier in self._carriers)

    @property
    def bytes_received(self) -> int:
        """Bytes of vectors received from peers so far, valid or not."""
        return sum(carrier.bytes_received for carrier in self._carriers)

    def shared_copy(self, vector: Payload) -> Payload | None:
        """The copy of the first carrier that can hand one over as it is."""
        copies = (carrier.shared_copy(vector) for carrier in self._carriers)
        return next((copy for copy in copies if copy is not None), None)

    def serve(self, answerer: Answerer) -> None:
        """Start answering peers. Once."""
        if self._polls is not None:
            raise RunError(f"{self.name} is serving already. One transport has one outbox.")
        if not self._secured and self._is_exposed:
            _log.warning(
                "WARNING: %s listens on %s without certificates. Whoever reaches that port can "
                "pose as any node, and read and change what is learned. Make certificates: "
                "garfield certs.", self.name, self._listen,
            )  # fmt: skip
        self._address = self._loop.run(self._serve(answerer))

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float,
        stall_s: float | None = None,
    ) -> Replies:  # fmt: skip
        """Ask all peers at once for `key`; see the contract."""
        request = wire.Request(key, length)
        request.encode()  # a mistake shows here, not as silence
        stall_s = timeout_s / 2 if stall_s is None else stall_s
        return self._loop.run(self._pull(sorted(set(peers)), request, until, timeout_s, stall_s))

    def close(self) -> None:
        """Stop serving and free everything: thread, port, connections, memory."""
        self._loop.close(self._shut())

    # -- on the loop ----------------------------------------------------------------

    async def _serve(self, answerer: Answerer) -> str:
        polls = self._polls = Polls(answerer)
        answering = Answering(polls, self._carriers)
        answerer.watch(lambda: self._loop.post(polls.wake))
        self._dialling.start(answering)
        if self._listen is None:
            return identity.DIALS_IN
        for carrier in self._carriers:
            carrier.open(self._listen)
        self._server = GrpcServer(answering, self._asker, self._links)
        port = await self._server.start(self._listen, self._server_credentials)
        if self._listen.startswith("unix:"):
            return self._listen
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def _shut(self) -> None:
        await self._asking.close()
        await self._dialling.close()
        if self._server is not None:
            await self._server.stop()
        for carrier in self._carriers:
            await carrier.close()
        await self._client.close()
        self._server_credentials = None
        self._buffers = Buffers()

    def _asker(self, context: Any) -> str | None:
        """Who is calling, from its certificate; without any, as it says."""
        if self._secured:
            names = context.auth_context().get("x509_subject_alternative_name", ())
            who = identity.from_dns_names(name.decode("ascii", "replace") for name in names)
            peer = self._peers.get(who.name) if who else None
            return who.name if who and peer and peer.role == who.role else None
        names = [value for key, value in context.invocation_metadata() if key == NAME_KEY]
        return names[0] if len(names) == 1 and names[0] in self._peers else None

    def _may_dial(self, name: str) -> bool:
        peer = self._peers.get(name)
        return peer is not None and peer.dials_in

    async def _pull(
        self,
        peers: Sequence[str],
        request: wire.Request,
        until: Until,
        timeout_s: float,
        stall_s: float,
    ) -> Replies:
        self._buffers.recall(request.key.kind)
        checked = lambda row: True  # noqa: E731 (each carrier has looked already)
        collector = ReplyCollector(peers, request.key, request.length, until, is_finite=checked)
        deadline = asyncio.get_running_loop().time() + timeout_s
        attempts = [
            Attempt(peer, request, deadline, timeout_s, stall_s, self._buffers) for peer in peers
        ]
        late = self._asking.take_late()
        if not collector.done:
            came = await self._asking.ask_all(attempts, collector, timeout_s)
            why = {peer: attempt.so_far() for peer, attempt in came.items()}
            return collector.replies(timeout_s, why, late=late)
        return collector.replies(timeout_s, late=late)

    async def _ask(self, attempt: Attempt) -> Received | Gone:
        if attempt.peer == self.name:
            return await self._ask_oneself(attempt.request)
        return await self._client.ask(attempt)

    async def _ask_oneself(self, request: wire.Request) -> Received | Gone:
        """Ask as a peer would, but for the journey: a lie is told here too, and found out."""
        if self._polls is None:
            raise wire.WireError(Silence(Reason.UNREACHABLE, "serves nothing"))
        answer = await self._polls.settled(self.name, request.key)
        if isinstance(answer, Gone):
            return answer
        if isinstance(answer, Refused):
            raise wire.WireError(Silence(Reason.REFUSED, "that is not for everybody"))
        row = wire.as_row(answer.payload, request)
        if answer.pace_bps is not None:
            await asyncio.sleep(8 * row.nbytes / answer.pace_bps)
        await check_finite(row)
        return Received(row, step=answer.step)


def _for_server(credentials: Credentials) -> Any:
    pair = credentials.key, credentials.certificate
    return grpc.ssl_server_credentials(
        [pair], root_certificates=credentials.authority, require_client_auth=True
    )


def _for_client(credentials: Credentials) -> Any:
    return grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )
