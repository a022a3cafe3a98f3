"""What a server and its worker processes say to each other, over a socket pair of their own.

A message is its kind, its length and its bytes. The server sends tasks, and may call one off;
the worker answers with rows as they come, already as they go over the wire, and ends every
task with DONE or REFUSED. Both are ours, so lengths are believed up to a bound; a worker that
has gone mad ends as one that has crashed does.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from garfield.core.files import as_json

MAX_MESSAGE = 1 << 30
_HEAD = struct.Struct("<BIQ")  # kind, rows, length


class Kind(IntEnum):
    """What a message is."""

    TASK = 1
    ABORT = 2
    READY = 3
    """The worker is warm and waits for a task."""
    HEADER = 4
    """The first bytes of the answer."""
    ROWS = 5
    """So many whole rows of the answer."""
    MARK = 8
    """Somebody may look at the memory now; the worker waits to be told to go on."""
    GO_ON = 9
    DONE = 6
    """The task is done, and its memory given back; JSON with what it took."""
    REFUSED = 7
    """The task cannot be done; the JSON body of a refusal."""


ENDS = (Kind.DONE, Kind.REFUSED)


class OtherSideGone(Exception):  # noqa: N818
    """The process at the other end has ended, or has gone mad."""


@dataclass(frozen=True)
class Message:
    """One message."""

    kind: Kind
    content: bytes = b""
    rows: int = 0

    @property
    def told(self) -> dict[str, Any]:
        """The JSON object that it holds."""
        found = json.loads(self.content or b"{}")
        assert isinstance(found, dict)
        return found

    def encode(self) -> bytes:
        return _HEAD.pack(self.kind, self.rows, len(self.content)) + self.content


def of(kind: Kind, told: Mapping[str, Any]) -> Message:
    """A message that holds a JSON object."""
    return Message(kind, as_json(told).encode())


def _head(head: bytes) -> tuple[Kind, int, int]:
    kind, rows, length = _HEAD.unpack(head)
    if length > MAX_MESSAGE:
        raise OtherSideGone(f"a message of {length} bytes")
    try:
        return Kind(kind), rows, length
    except ValueError:
        raise OtherSideGone(f"a message of kind {kind}") from None


class WorkerSide:
    """The worker's end: blocking."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def send(self, message: Message) -> None:
        try:
            self._stream.sendall(_HEAD.pack(message.kind, message.rows, len(message.content)))
            self._stream.sendall(message.content)
        except OSError:
            raise OtherSideGone("the server has gone") from None

    def receive(self) -> Message:
        """The next message; OtherSideGone when the server is gone."""
        kind, rows, length = _head(self._exactly(_HEAD.size))
        return Message(kind, self._exactly(length), rows)

    def mark(self) -> None:
        """Let the server look at how much memory was needed so far."""
        self.send(Message(Kind.MARK))
        while self.receive().kind is not Kind.GO_ON:
            pass

    def called_off(self) -> bool:
        """Whether the server wants no more of the task at hand."""
        while select.select([self._stream], [], [], 0)[0]:
            if self.receive().kind is Kind.ABORT:
                return True
        return False

    def _exactly(self, length: int) -> bytes:
        taken = bytearray(length)
        view, filled = memoryview(taken), 0
        while filled < length:
            try:
                count = self._stream.recv_into(view[filled:])
            except OSError:
                count = 0
            if not count:
                raise OtherSideGone("the server has gone")
            filled += count
        return bytes(taken)


class ServerSide:
    """The server's end: on its event loop. OtherSideGone when the worker has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, stream: socket.socket) -> ServerSide:
        """Take a connected socket."""
        return cls(*await asyncio.open_connection(sock=stream, limit=1 << 20))

    async def send(self, message: Message) -> None:
        try:
            self._writer.write(message.encode())
            await self._writer.drain()
        except OSError:
            raise OtherSideGone("the worker has ended") from None

    async def receive(self) -> Message:
        try:
            kind, rows, length = _head(await self._reader.readexactly(_HEAD.size))
            return Message(kind, await self._reader.readexactly(length), rows)
        except (asyncio.IncompleteReadError, OSError):
            raise OtherSideGone("the worker has ended") from None

    def close(self) -> None:
        self._writer.close()
