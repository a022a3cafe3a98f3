"""Nodes in processes of their own, on one host or many, by gRPC.

A transport has one thread, on which one asyncio loop answers the peers
(`server.py`) and asks them (`client.py`), so that waiting holds no
thread; the node's own thread blocks in `pull`. With credentials, both ends
prove name and role by mutual TLS. Without, names are taken on trust, and so
only on loopback, unless told otherwise in so many words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError, GarfieldError
from garfield.core.silence import NOT_FINITE, Reason, Silence
from garfield.transport import identity
from garfield.transport.contract import Gone, Key, Payload, Replies, Source, Until
from garfield.transport.datagrams.server import DatagramServer
from garfield.transport.finite import all_finite_by_pieces
from garfield.transport.grpc import wire
from garfield.transport.grpc.buffers import Buffers
from garfield.transport.grpc.client import GrpcClient
from garfield.transport.grpc.loop import LoopThread
from garfield.transport.grpc.options import NAME_KEY, grpc
from garfield.transport.grpc.server import GrpcServer, Polls
from garfield.transport.identity import Credentials, Peer
from garfield.transport.pulling import Attempt, Pull
from garfield.transport.same_host import descriptors, memfd
from garfield.transport.same_host.descriptors import Counter


class GrpcTransport:
    """One node's way to its peers.

    `peers` is looked up at every attempt, so it may fill up, and addresses may change, while
    nodes come and go; whoever is not in it is not answered. `listen` is host:port (0 for a free
    one, see `address`) or unix:/path. `same_host` is a directory that the peers on this host
    share: long vectors between them are then passed as sealed memory, and not copied.
    """

    def __init__(
        self,
        name: str,
        peers: Mapping[str, Peer],
        *,
        listen: str = "127.0.0.1:0",
        credentials: Credentials | None = None,
        insecure_ok: bool = False,
        same_host: Path | str | None = None,
    ) -> None:
        if credentials is not None and credentials.identity.name != name:
            owner = credentials.identity.name
            raise ConfigError(f"{name} cannot use the certificate of {owner}. Load its own.")
        if credentials is None and not insecure_ok and not _is_local(listen):
            raise ConfigError(
                f"{name} would listen on {listen} without certificates, where anybody may claim "
                "any name. Give credentials (garfield.transport.certs), or insecure_ok=True."
            )
        self.name = name
        self._peers = peers
        self._listen = listen
        self._secured = credentials is not None
        self._buffers = Buffers()
        self._polls: Polls | None = None
        self._server: GrpcServer | None = None
        self._post: DatagramServer | None = None
        self._address: str | None = None
        self._server_credentials = None if credentials is None else _for_server(credentials)
        channel_credentials = None if credentials is None else _for_client(credentials)
        self._same_host = None if same_host is None else descriptors.private(same_host)
        self._counter: Counter | None = None
        self._client = GrpcClient(name, peers, self._buffers, channel_credentials, self._same_host)
        self._loop = LoopThread(f"garfield-grpc-{name}")

    @property
    def address(self) -> str:
        """Where this node listens, for its peers to know."""
        if self._address is None:
            raise GarfieldError(f"{self.name} has no address yet. Call serve() first.")
        return self._address

    @property
    def bytes_sent(self) -> int:
        """Bytes of vectors sent to peers so far."""
        return 0 if self._server is None else self._server.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of vectors received from peers so far, valid or not."""
        return self._client.bytes_received

    def shared_copy(self, vector: Payload) -> Payload | None:
        """A copy in sealed memory, if peers are on this host and it is worth it."""
        if self._same_host is None or vector.nbytes <= wire.CHUNK:
            return None
        try:
            return memfd.kept(vector)
        except OSError:  # no descriptors left: it will be streamed
            return None

    def serve(self, source: Source) -> None:
        """Start answering peers from `source`. Once."""
        if self._polls is not None:
            raise GarfieldError(f"{self.name} is serving already. One transport has one source.")
        self._address = self._loop.run(self._serve(source))

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        """Ask all peers at once for `key`; see the contract."""
        request = wire.Request(key, length)
        request.encode()  # a mistake shows here, not as silence
        return self._loop.run(self._pull(sorted(set(peers)), request, until, timeout_s))

    def close(self) -> None:
        """Stop serving and free everything: thread, port, connections, memory."""
        self._loop.close(self._shut())

    # -- on the loop ----------------------------------------------------------------

    async def _serve(self, source: Source) -> str:
        polls = self._polls = Polls(source)
        if self._same_host is not None:
            self._counter = Counter(self._same_host, self.name)
            self._counter.open()
        self._server = GrpcServer(polls, self._asker, self._counter, self._post)
        port = await self._server.start(self._listen, self._server_credentials)
        source.watch(lambda: self._loop.post(polls.wake))
        if self._listen.startswith("unix:"):
            return self._listen
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def _shut(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._counter is not None:
            await self._counter.close()
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

    async def _pull(
        self, peers: Sequence[str], request: wire.Request, until: Until, timeout_s: float
    ) -> Replies:
        kind = request.key.kind
        self._buffers.recall(kind)
        pull = Pull(request, until, timeout_s)
        await pull.run(peers, self._ask)
        for peer, row in pull.unneeded.items():
            self._buffers.give(kind, peer, row)
        names = tuple(sorted(pull.rows))
        rows = tuple(self._buffers.lend(kind, name, pull.rows[name]) for name in names)
        return Replies(names, rows, pull.silent, pull.gone)

    async def _ask(self, attempt: Attempt) -> Payload | int:
        if attempt.peer == self.name:
            return await self._ask_oneself(attempt.request)
        return await self._client.ask(attempt)

    async def _ask_oneself(self, request: wire.Request) -> Payload | int:
        """As a peer would, but for the journey: a lie is told here too, and found out."""
        if self._polls is None:
            raise wire.WireError(Silence(Reason.UNREACHABLE, "serves nothing"))
        answer = await self._polls.settled(self.name, request.key)
        if isinstance(answer, Gone):
            return answer.now
        row = wire.as_row(answer.payload, request)
        if answer.pace_bps is not None:
            await asyncio.sleep(8 * row.nbytes / answer.pace_bps)
        if not await all_finite_by_pieces(row):
            raise wire.WireError(NOT_FINITE)
        return row


def _for_server(credentials: Credentials) -> Any:
    pair = credentials.key, credentials.certificate
    return grpc.ssl_server_credentials(
        [pair], root_certificates=credentials.authority, require_client_auth=True
    )


def _for_client(credentials: Credentials) -> Any:
    return grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )


def _is_local(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    return listen.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")
