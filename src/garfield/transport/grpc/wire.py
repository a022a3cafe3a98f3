"""What goes over the wire: a small request, a small header, then raw chunks.

A request names a key and the length wanted. The answer is a header, and, when
the vector is there and of that length, its bytes in chunks of exactly `CHUNK`,
the last one shorter. Every field is fixed and checked, so what a peer can make
us hold is what we asked it for. Pure: no sockets, no clock.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

from garfield.core.errors import ConfigError, UnknownName
from garfield.core.silence import NOT_FINITE, Reason, Silence
from garfield.kernels.finite import all_finite
from garfield.transport.contract import NEWEST, Key, Payload

CHUNK = 1 << 20  # bytes; a whole number of float64
MAX_REQUEST = 128  # bytes
MAX_MESSAGE = CHUNK + 4096  # what a client lets gRPC take in at once
TICKET = 16  # bytes

_REQUEST = struct.Struct("<4sBqIQ")  # magic, flags, step, round, length; then the kind
_HEADER = struct.Struct(f"<4sBBqIQ{TICKET}s")  # magic, status, flags, step, round, bytes, ticket
_ASKS, _ANSWERS = b"GFq1", b"GFa1"
_LARGEST_STEP, _LARGEST_LENGTH = NEWEST, 2**60

assert sys.byteorder == "little", "vectors travel as they lie in memory: little-endian"


class WireError(Exception):
    """What came is not what was asked for, or nothing will come; why, is kept in `silence`."""

    def __init__(self, silence: Silence) -> None:
        super().__init__(silence.detail)
        self.silence = silence


def wrong_size(detail: str) -> WireError:
    """More or fewer bytes than were asked for."""
    return WireError(Silence(Reason.WRONG_SIZE, detail))


def _malformed(detail: str) -> WireError:
    return WireError(Silence(Reason.GARBAGE, detail))


class Status(IntEnum):
    """How the peer answered."""

    READY = 1
    GONE = 2


class Flag(IntFlag):
    """What a request would take instead of chunks, and what follows a header instead of them."""

    NONE = 0
    DESCRIPTOR = 1
    """The vector's memory: the header has the ticket for it."""
    DATAGRAMS = 2
    """Blocks by UDP: an offer follows the header."""


_FLAGS = Flag.DESCRIPTOR | Flag.DATAGRAMS


@dataclass(frozen=True)
class Request:
    """Give me `key`, a vector of `length` numbers."""

    key: Key
    length: int
    flags: Flag = Flag.NONE

    @property
    def total(self) -> int:
        """How many bytes that is."""
        return self.length * self.key.dtype.itemsize

    def encode(self) -> bytes:
        if not (0 <= self.key.step <= _LARGEST_STEP and 0 <= self.key.round < 2**32):
            raise ConfigError(f"A key's step and round count from 0, got {self.key}.")
        if not 1 <= self.length <= _LARGEST_LENGTH:
            raise ConfigError(f"A vector has at least one element, asked for {self.length}.")
        fields = (_ASKS, self.flags, self.key.step, self.key.round, self.length)
        return _REQUEST.pack(*fields) + self.key.kind.encode()

    @classmethod
    def decode(cls, message: bytes) -> Request:
        if not _REQUEST.size < len(message) <= MAX_REQUEST:
            raise _malformed("not a request")
        magic, flags, step, round_, length = _REQUEST.unpack_from(message)
        known = magic == _ASKS and flags <= _FLAGS
        if not (known and 0 <= step <= _LARGEST_STEP and 1 <= length <= _LARGEST_LENGTH):
            raise _malformed("not a request")
        kind = message[_REQUEST.size :].decode("ascii", "replace")
        try:
            return cls(Key(kind, step, round_), length, Flag(flags))
        except UnknownName:
            raise _malformed("a request for an unknown kind of vector") from None


@dataclass(frozen=True)
class Header:
    """What follows: `total` bytes of the vector at (step, round), or nothing: gone, now at step."""

    status: Status
    step: int
    round: int = 0
    total: int = 0
    flags: Flag = Flag.NONE
    ticket: bytes = bytes(TICKET)
    """Which descriptor to fetch, when that is the way."""

    def encode(self) -> bytes:
        fields = (self.status, self.flags, self.step, self.round, self.total, self.ticket)
        return _HEADER.pack(_ANSWERS, *fields)

    @classmethod
    def decode(cls, message: object) -> Header:
        if not isinstance(message, bytes) or len(message) != _HEADER.size:
            raise _malformed("garbage instead of a header")
        magic, status, flags, step, round_, total, ticket = _HEADER.unpack(message)
        known = status in (Status.READY, Status.GONE) and flags <= _FLAGS
        if magic != _ANSWERS or not known or not 0 <= step <= _LARGEST_STEP:
            raise _malformed("garbage instead of a header")
        return cls(Status(status), step, round_, total, Flag(flags), ticket)

    def gone_at(self, request: Request) -> int | None:
        """The step that the peer claims to be at if the key is gone; None if it is there.

        Raises WireError when the header does not belong to the request.
        """
        key = request.key
        if self.status == Status.GONE:
            return self.step
        any_step = key.is_newest and self.step != key.step
        if not any_step and (self.step, self.round) != (key.step, key.round):
            detail = f"sent step {self.step}.{self.round} instead of {key.step}.{key.round}"
            raise WireError(Silence(Reason.WRONG_STEP, detail))
        if self.total != request.total:
            raise wrong_size(f"sent {self.total} of {request.total} bytes")
        if self.flags & ~request.flags:
            raise _malformed("answered in a way that nobody asked for")
        return None


def raw(payload: Payload | bytes) -> memoryview:
    """The bytes of a vector, where they are."""
    if isinstance(payload, bytes):
        return memoryview(payload)
    return payload.reshape(-1).view(np.uint8).data


def chunks(payload: Payload | bytes) -> Iterator[bytes]:
    """The bytes of a vector, copied out one chunk at a time."""
    view = raw(payload)
    for lo in range(0, len(view), CHUNK):
        yield view[lo : lo + CHUNK].tobytes()  # gRPC takes bytes only; a memoryview hangs the peer


class Filling:
    """A row that fills up chunk by chunk. Each is checked while it is still in the cache."""

    def __init__(self, row: Payload) -> None:
        self.row = row
        self._into = raw(row)
        self.arrived = 0

    def __str__(self) -> str:
        return f"sent {self.arrived} of {len(self._into)} bytes"

    @property
    def complete(self) -> bool:
        return self.arrived == len(self._into)

    def add(self, chunk: object) -> None:
        """Take the next chunk, which has exactly one right size."""
        due = min(CHUNK, len(self._into) - self.arrived)
        if not isinstance(chunk, bytes):
            raise wrong_size(str(self))
        if len(chunk) != due:
            raise wrong_size(f"sent a chunk of {len(chunk)} bytes instead of {due}")
        self._into[self.arrived : self.arrived + due] = chunk
        lo, self.arrived = self.arrived, self.arrived + due
        item = self.row.itemsize
        if not all_finite(self.row[lo // item : self.arrived // item]):
            raise WireError(NOT_FINITE)


def as_row(payload: Payload | bytes, request: Request) -> Payload:
    """A payload that did not travel, held to the same terms; its values are yet to be checked."""
    size = len(raw(payload))
    if size != request.total:
        raise wrong_size(f"sent {size} of {request.total} bytes")
    row = np.frombuffer(payload, dtype=request.key.dtype)
    row.flags.writeable = False
    return row
