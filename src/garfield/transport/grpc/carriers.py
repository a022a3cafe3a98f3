"""How a vector travels once gRPC has found it: in chunks on the call, or in another way.

gRPC carries every question: who asks, for what, until when, and whether it is
there yet or gone. An asker says which other carrier it would take as well, the
answerer says in its header which one it has taken. A carrier is both ends of one
way, and knows nothing of the others. `Chunks` can carry anything; the others are
handed to the transport (`same_host/carrier.py`, `datagrams/carrier.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from garfield.core.silence import NOT_FINITE, Reason, Silence
from garfield.kernels.finite import all_finite
from garfield.transport.contract import Holes, Key, Payload, Ready, kind_named
from garfield.transport.grpc import wire
from garfield.transport.grpc.options import aio

if TYPE_CHECKING:
    from garfield.transport.grpc.server import Call

_PIECE = 1 << 18  # numbers: a megabyte or two, some tenths of a millisecond to look at


class Received(NamedTuple):
    """A vector that has arrived, all of it finite."""

    row: Payload
    holes: Holes | None = None
    """What was lost of it on the way, if anything."""
    step: int | None = None
    """The step that its sender says it is of, where the newest was asked for."""


class Carrier(Protocol):
    """One way for vectors to travel. All runs on the transport's loop."""

    @property
    def flag(self) -> wire.Flag:
        """What stands for it in requests and headers."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of vectors sent this way so far."""

    @property
    def bytes_received(self) -> int:
        """Bytes of vectors received this way so far."""

    def open(self, listen: str) -> None:
        """Be ready to send, for a node whose gRPC listens there."""

    async def close(self) -> None:
        """Free everything."""

    def shared_copy(self, vector: Payload) -> Payload | None:
        """A copy that this carrier can hand over as it is; None if that is no gain."""

    def wanted(self, attempt: Attempt) -> bool:
        """Whether the asker would take the answer this way."""

    async def fetch(self, call: Any, header: wire.Header, attempt: Attempt) -> Received:
        """Receive what the header on this gRPC call announces.

        Raises WireError when the peer has failed for good, OSError when it is worth asking again.
        """

    async def send(self, answer: Ready, key: Key, header: wire.Header, call: Call) -> bool:
        """Send header and vector; False, and nothing sent, if it cannot go this way."""


@dataclass
class Attempt:
    """Asking one peer until the loop's clock shows `deadline`, and how far that has come."""

    peer: str
    request: wire.Request
    deadline: float
    timeout_s: float
    """How long that is, from its beginning."""
    stall_s: float
    """How long a peer that has begun to send may take over one chunk; longer every time that it
    took too long."""
    buffers: Buffers
    address: str = ""
    """Where the peer listens."""
    failure: Silence | None = None
    """Why it failed last time."""
    progress: object | None = None
    """What is arriving: its text says how much of it is there."""
    by_chunks: bool = False
    """Whether a better way has failed."""
    is_reached: Callable[[], bool] = lambda: False
    """Whether the peer is there now, and only its answer is missing."""

    def left_s(self) -> float:
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    def so_far(self) -> Silence | None:
        """What is known of a peer that has not answered yet; None if it is there, and silent."""
        if self.failure is not None and self.failure.reason is Reason.STALLED:
            return self.failure
        if self.progress is not None:
            spent_s = self.timeout_s - self.left_s()
            return Silence(Reason.TOO_SLOW, f"{self.progress} in {spent_s:.3g} s")
        return None if self.is_reached() else self.failure

    def take_row(self) -> Payload:
        """A row to receive into."""
        return self.buffers.take(self.request.key.kind, self.peer, self.request.length)

    def give_back(self, row: Payload) -> None:
        """Return a row that nobody will read."""
        self.buffers.give(self.request.key.kind, self.peer, row)


class Buffers:
    """Rows to receive into, used again round after round: one per kind and peer.

    A row is free, being filled, or lent to the node until its next pull of that kind. A read-only
    row is somebody else's memory: it is passed on, and never taken in.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[str, str], Payload] = {}
        self._lent: dict[str, dict[str, Payload]] = {}

    def recall(self, kind: str) -> None:
        """Take back what the last pull of this kind lent: a new one begins."""
        for peer, row in self._lent.pop(kind, {}).items():
            self.give(kind, peer, row)

    def take(self, kind: str, peer: str, length: int) -> Payload:
        """A row to fill."""
        row = self._free.pop((kind, peer), None)
        fits = row is not None and len(row) == length
        return row if row is not None and fits else np.empty(length, kind_named(kind).dtype)

    def give(self, kind: str, peer: str, row: Payload) -> None:
        """Take a row back that nobody reads any more."""
        if row.flags.writeable:
            self._free[kind, peer] = row

    def lend(self, kind: str, peer: str, row: Payload) -> None:
        """Leave a row to the node, which reads it until its next pull of this kind."""
        if row.flags.writeable:
            self._lent.setdefault(kind, {})[peer] = row


class Chunks:
    """A vector on the gRPC call itself, chunk by chunk. This can carry anything."""

    flag = wire.Flag.NONE

    def __init__(self) -> None:
        self.bytes_sent = self.bytes_received = 0

    def open(self, listen: str) -> None:
        """Nothing: gRPC is there."""

    async def close(self) -> None:
        """Nothing."""

    def shared_copy(self, vector: Payload) -> Payload | None:
        return None

    def wanted(self, attempt: Attempt) -> bool:
        return True

    async def fetch(self, call: Any, header: wire.Header, attempt: Attempt) -> Received:
        row = attempt.take_row()
        filling = attempt.progress = wire.Filling(row)
        try:
            while not filling.complete:
                filling.add(await _read(call, attempt))
            if not await _ends(call, attempt):
                raise wire.wrong_size(f"sent more than {row.nbytes} bytes")
        finally:
            self.bytes_received += filling.arrived
            if not filling.complete:
                attempt.give_back(row)
        return Received(row)

    async def send(self, answer: Ready, key: Key, header: wire.Header, call: Call) -> bool:
        await call.write(header.encode())
        for chunk in wire.chunks(answer.payload):
            if answer.pace_bps is not None:
                await asyncio.sleep(8 * len(chunk) / answer.pace_bps)
            await call.write(chunk)
            self.bytes_sent += len(chunk)
        return True


async def _read(call: Any, attempt: Attempt) -> object:
    """The next message, unless it takes too long.

    Not by asyncio.wait_for: before Python 3.12 it may swallow that we are being cancelled. And
    whoever reads must not wait until gRPC says that it has cancelled the call: one that is
    cancelled between its last message and its status, as when a process thaws, never says so.
    """
    reading = asyncio.ensure_future(call.read())
    try:
        await asyncio.wait([reading], timeout=attempt.stall_s)
        if reading.done():
            return reading.result()
    finally:
        reading.cancel()  # nothing, if it is done
    call.cancel()
    detail = f"stalled for {attempt.stall_s:g} s, {attempt.progress}"
    raise wire.WireError(Silence(Reason.STALLED, detail))


async def _ends(call: Any, attempt: Attempt) -> bool:
    """Whether nothing follows a vector that is there whole.

    It counts, too, if its sender is merely slow to say so: asked again, it would be as slow again.
    """
    try:
        return await _read(call, attempt) is aio.EOF
    except wire.WireError:
        return True


async def check_finite(row: Payload) -> None:
    """Look at a vector piece by piece, on a loop that has others to look after.

    Raises WireError for one with a number that is not finite.
    """
    for lo in range(0, len(row), _PIECE):
        if not all_finite(row[lo : lo + _PIECE]):
            raise wire.WireError(NOT_FINITE)
        await asyncio.sleep(0)
