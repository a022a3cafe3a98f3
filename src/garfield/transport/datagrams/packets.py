"""Datagrams: a vector in numbered blocks, and small requests for a window of them.

Every pull has a session of its own, whose secret key came with its `Offer` over
the gRPC connection between the two nodes, which proved their names to each
other. Each datagram is sealed with that key by AES-128-GCM: its tag of 16 bytes
is a keyed MAC of the whole datagram, and what it carries is hidden as well. So
nobody else can forge one, one of another pull, step or sender fits nowhere, and
one that was changed, cut or made up is dropped before anything is done with it.

    magic  what  session  number | sealed body, tag
    4      1     8        4      | …           16 bytes

`number` is a block's place in the vector, or counts requests; with `what` it is
the nonce. A block's number always stands for the same bytes, and a request's is
used once, so no nonce ever seals two texts. Pure: no sockets, no clock.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from garfield.core.silence import Reason, Silence
from garfield.transport.grpc.wire import TICKET, WireError

HOST_BLOCK = 2048
"""Numbers in a block between processes of one host, where a datagram may be long."""
NET_BLOCK = 350
"""Numbers in a block between hosts: with all headers it fits an Ethernet frame of 1,500 bytes.
In one that did not, the loss of any of its fragments would lose them all."""
WINDOW = 1 << 16
"""Bytes of blocks that one request is answered with. Two are under way at once, for which the
system may take four times their bytes, and lets any socket have as much."""

ITEM = 4  # bytes of a number: gradients and models are of float32
SESSION = 8  # bytes
TAG = 16  # bytes
_HEAD = struct.Struct(f"<4sB{SESSION}sI")
_NONCE = struct.Struct("<B7xI")
_WANT = struct.Struct("<IH")
_OFFER = struct.Struct(f"<4s{SESSION}s{TICKET}sHI")
_MAGIC, _OFFERS = b"GFd1", b"GFo1"
_NO_OFFER = Silence(Reason.GARBAGE, "garbage instead of an offer of datagrams")
OVERHEAD = _HEAD.size + TAG
LARGEST = OVERHEAD + HOST_BLOCK * ITEM


class What(IntEnum):
    """What a datagram is."""

    REQUEST = 1
    BLOCK = 2


class Window(NamedTuple):
    """Blocks that are asked for together."""

    first: int
    size: int


def blocks_of(length: int, block: int) -> int:
    """How many blocks a vector of that length is sent in."""
    return -(-length // block)


def nothing_came(blocks: int) -> Silence:
    """A peer offered its vector, and none of it came; worth asking again."""
    return Silence(Reason.STALLED, f"stalled, sent 0 of {blocks} datagrams")


def most_at_once(block: int) -> int:
    """How many blocks one request may ask for."""
    return max(1, WINDOW // (block * ITEM))


@dataclass(frozen=True)
class Offer:
    """How to fetch a vector by datagrams: told by gRPC, to the one who asked."""

    session: bytes
    key: bytes
    port: int
    block: int
    """Numbers in a block."""

    def encode(self) -> bytes:
        return _OFFER.pack(_OFFERS, self.session, self.key, self.port, self.block)

    @classmethod
    def decode(cls, message: object) -> Offer:
        if not isinstance(message, bytes) or len(message) != _OFFER.size:
            raise WireError(_NO_OFFER)
        magic, session, key, port, block = _OFFER.unpack(message)
        if magic != _OFFERS or not port or block not in (HOST_BLOCK, NET_BLOCK):
            raise WireError(_NO_OFFER)
        return cls(session, key, port, block)


class Seal:
    """Makes and opens the datagrams of one session."""

    def __init__(self, session: bytes, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._session = session
        self._cipher = AESGCM(key)
        self._invalid = InvalidTag

    def request(self, number: int, window: Window) -> bytes:
        return self._sealed(What.REQUEST, number, _WANT.pack(*window))

    def block(self, number: int, body: memoryview) -> bytes:
        return self._sealed(What.BLOCK, number, body)

    def open_request(self, datagram: memoryview) -> tuple[int, Window] | None:
        """Its number, and the blocks that it asks for; None if anything about it is wrong."""
        opened = self._opened(What.REQUEST, datagram)
        if opened is None or len(opened[1]) != _WANT.size:
            return None
        return opened[0], Window(*_WANT.unpack(opened[1]))

    def open_block(self, datagram: memoryview) -> tuple[int, bytes] | None:
        """Its number and its bytes; None if anything about it is wrong."""
        return self._opened(What.BLOCK, datagram)

    def _sealed(self, what: What, number: int, body: bytes | memoryview) -> bytes:
        head = _HEAD.pack(_MAGIC, what, self._session, number)
        return head + self._cipher.encrypt(_NONCE.pack(what, number), body, head)

    def _opened(self, what: What, datagram: memoryview) -> tuple[int, bytes] | None:
        if len(datagram) < OVERHEAD:
            return None
        head = datagram[: _HEAD.size]
        magic, claimed, session, number = _HEAD.unpack(head)
        if magic != _MAGIC or claimed != what or session != self._session:
            return None
        try:
            nonce = _NONCE.pack(what, number)
            return number, self._cipher.decrypt(nonce, datagram[_HEAD.size :], head)
        except self._invalid:
            return None


def session_of(datagram: memoryview) -> bytes | None:
    """Whose it claims to be, which the seal will tell; None for what is no datagram of ours."""
    if len(datagram) < OVERHEAD or datagram[:4] != _MAGIC:
        return None
    return bytes(datagram[5 : 5 + SESSION])
