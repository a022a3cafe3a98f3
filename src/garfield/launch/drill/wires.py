"""The links between the nodes of a drill: TCP on loopback, which can be cut, slowed or misled.

Every pair of an asker and a peer has a wire of its own: the asker connects to the wire's port,
and the wire to the peer's. Bytes pass as they are, so TLS is between the nodes, not with us. All
wires are served by one thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any

_CHUNK = 1 << 16
_SLOW_S = 0.25
_NOISE = 512  # bytes that an impostor answers with


class Passage(Enum):
    """What becomes of bytes on a wire."""

    OPEN = "open"
    CUT = "cut"
    """They wait, and nobody is told."""
    REFUSED = "refused"
    """Connections are reset."""
    SLOW = "slow"
    MISLED = "misled"
    """A stranger is at the other end, who says what is nonsense."""


class _Wire:
    """From one asker to one peer."""

    def __init__(self, port: int) -> None:
        self.peer_port = port
        self.passage = Passage.OPEN
        self.open = asyncio.Event()
        self.open.set()
        self.writers: set[asyncio.StreamWriter] = set()

    def set(self, passage: Passage) -> None:
        self.passage = passage
        if passage is Passage.CUT:
            self.open.clear()
        else:
            self.open.set()
        if passage in (Passage.REFUSED, Passage.MISLED):
            for writer in self.writers:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        self.writers.add(writer)
        try:
            with suppress(OSError):
                await self._carry(reader, writer)
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        if self.passage is Passage.REFUSED:
            return
        if self.passage is Passage.MISLED:
            writer.write(os.urandom(_NOISE))
            await writer.drain()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.peer_port)
        self.writers.add(back)
        ways = [
            asyncio.ensure_future(self._pump(reader, back)),
            asyncio.ensure_future(self._pump(there, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.writers.discard(back)
            back.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self.open.wait()
            if self.passage is Passage.SLOW:
                await asyncio.sleep(_SLOW_S)
            writer.write(data)
            await writer.drain()


class Wires:
    """All wires of a drill. Use as a context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._wires: dict[tuple[str, str], _Wire] = {}
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Wires:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lay(self, asker: str, peer: str, peer_port: int) -> int:
        """Make a wire; the port that the asker is to connect to."""
        return int(self._do(self._lay(asker, peer, peer_port)))

    def around(self, node: str) -> list[tuple[str, str]]:
        """The wires from and to that node."""
        return [pair for pair in self._wires if node in pair]

    def to(self, node: str) -> list[tuple[str, str]]:
        """The wires on which others ask that node."""
        return [pair for pair in self._wires if pair[1] == node]

    def set(self, pairs: Iterable[tuple[str, str]], passage: Passage) -> None:
        """Let bytes pass on these wires, or not."""

        async def change() -> None:
            for pair in pairs:
                self._wires[pair].set(passage)

        self._do(change())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _lay(self, asker: str, peer: str, peer_port: int) -> int:
        wire = self._wires[asker, peer] = _Wire(peer_port)
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for wire in self._wires.values():
            wire.set(Passage.REFUSED)
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
