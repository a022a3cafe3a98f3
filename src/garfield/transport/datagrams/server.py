"""The side that answers by datagrams: blocks, to whoever proves to be the one they are for.

A session lasts as long as the gRPC call that it was offered on, and there are
as many as that call's server allows. A request is answered only if

- its seal fits the session's key, which only the asker was told, by gRPC;
- its number is larger than that of any before it: none is answered twice;
- it came from the address from which the call came, which the TCP handshake has
  proved: a request that somebody recorded and sends again in the name of a third
  machine brings that machine nothing;
- it asks for one window at most, and for blocks that were not yet sent `TRIES`
  times.

Anything else is dropped, unanswered, and costs the time to look at it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from garfield.core.errors import ConfigError
from garfield.core.types import Flags
from garfield.transport.contract import Key
from garfield.transport.datagrams.links import TRIES, LossyLinks, Repeats
from garfield.transport.datagrams.packets import (
    HOST_BLOCK,
    ITEM,
    LARGEST,
    NET_BLOCK,
    SESSION,
    Offer,
    Seal,
    blocks_of,
    most_at_once,
    session_of,
)
from garfield.transport.grpc.origin import Address, origin, plain
from garfield.transport.grpc.wire import TICKET

_AT_ONCE = 64  # datagrams that are looked at before others on the loop have their turn
_SEND_BUFFER = 1 << 20


def caller(peer: str) -> Address | None:
    """The host that a gRPC call came from, as its context names it; None for this one."""
    found = origin(peer)
    return None if found is None else found.host


@dataclass
class Session:
    """One vector on its way to one asker."""

    seal: Seal
    vector: memoryview
    block: int
    """Numbers in a block."""
    asker: Address | None
    """Where requests may come from; None for this host."""
    dropped: Flags
    """(TRIES, blocks) which of them to lose on purpose, by how often they were sent before."""
    newest: int = -1

    def __post_init__(self) -> None:
        self._sent = [0] * self.dropped.shape[1]

    def allows(self, host: str) -> bool:
        address = plain(host)
        return address.is_loopback if self.asker is None else address == self.asker

    def blocks(self, datagram: memoryview) -> Iterator[bytes]:
        """What answers this request; nothing, if anything about it is wrong."""
        opened = self.seal.open_request(datagram)
        if opened is None:
            return
        number, (first, count) = opened
        if number <= self.newest or count > most_at_once(self.block):
            return
        self.newest = number
        for at in range(first, min(first + count, len(self._sent))):
            before = self._sent[at]
            if before >= TRIES:
                continue
            self._sent[at] += 1
            if not self.dropped[before, at]:
                lo = at * self.block * ITEM
                yield self.seal.block(at, self.vector[lo : lo + self.block * ITEM])


class DatagramServer:
    """A UDP port, and the sessions that are open on it. All runs on the transport's loop."""

    def __init__(self, name: str, links: LossyLinks) -> None:
        self._name = name
        self._links = links
        self._repeats = Repeats()
        self._sessions: dict[bytes, Session] = {}
        self._socket: socket.socket | None = None
        self._into = memoryview(bytearray(LARGEST))
        self.bytes_sent = 0
        self.dropped = 0
        """Requests that were not answered."""

    def open(self, listen: str) -> None:
        """Bind the port that gRPC has, so that a firewall lets both in or none; any, for port 0."""
        host, port = ("127.0.0.1", "0") if listen.startswith("unix:") else _split(listen)
        family, _, _, _, address = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            self._socket.bind(address)
        except OSError as problem:
            self.close()
            raise ConfigError(
                f"{self._name} cannot have UDP port {port} of {host}: {problem.strerror}. Free "
                "it, or listen on another port."
            ) from None
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def close(self) -> None:
        if self._socket is not None:
            with suppress(RuntimeError):  # opened on no loop
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    @contextmanager
    def session(self, asker: str, key: Key, vector: memoryview, peer: str) -> Iterator[Offer]:
        """Let the asker at `peer`, as gRPC calls it, fetch this vector."""
        assert self._socket is not None
        origin = caller(peer)
        block = HOST_BLOCK if origin is None or origin.is_loopback else NET_BLOCK
        offer = Offer(os.urandom(SESSION), os.urandom(TICKET), self._socket.getsockname()[1], block)
        blocks = blocks_of(len(vector) // ITEM, block)
        again = self._repeats.again(asker, key)
        dropped = self._links.dropped((asker, self._name), key, blocks, again)
        seal = Seal(offer.session, offer.key)
        self._sessions[offer.session] = Session(seal, vector, block, origin, dropped)
        try:
            yield offer
        finally:
            del self._sessions[offer.session]

    def _receive(self) -> None:
        assert self._socket is not None
        for _ in range(_AT_ONCE):
            try:
                size, address = self._socket.recvfrom_into(self._into)
            except OSError:  # nothing more, or word that an asker is gone
                return
            self._answer(self._into[:size], address)

    def _answer(self, datagram: memoryview, address: Any) -> None:
        assert self._socket is not None
        session = self._sessions.get(session_of(datagram) or b"")
        before = self.bytes_sent
        if session is not None and session.allows(address[0]):
            for block in session.blocks(datagram):
                with suppress(OSError):  # the system has no room: lost, as on the way
                    self._socket.sendto(block, address)
                self.bytes_sent += len(block)
        self.dropped += self.bytes_sent == before


def _split(listen: str) -> tuple[str, str]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), port
