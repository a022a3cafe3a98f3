"""A link of limited bandwidth on one machine: for demonstrations and tests without `tc`.

    with LimitedLink(bps=20e6) as link:
        port = link.to("127.0.0.1", 8080)     # connect there instead: 20 Mbps each way

All connections through it share one token bucket for each direction, as they would share a
wire, and the bytes that passed are counted. Runs in one thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from garfield.split.stores.contract import REQUEST_S

if TYPE_CHECKING:
    from garfield.split.stores import Access, Store

_PIECE = 16 << 10  # bytes at a time: at 1 Mbps an eighth of a second
_BUFFER = 128 << 10  # of a socket; more would hide from the sender that the link is full
_BURST_S = 0.01  # what may pass at once after silence, as time on the link


class LimitedLink:
    """A link with so many bits a second in each direction. Use as a context."""

    def __init__(self, bps: float) -> None:
        self.bps = bps
        """May be changed while it is in use."""
        self.down_bytes = self.up_bytes = 0
        """Towards the one who connects, and from it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="limited-link", daemon=True)
        self._free_at = {"down": 0.0, "up": 0.0}
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> LimitedLink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def to(self, host: str, port: int) -> int:
        """The port on this machine that leads there, over the link."""

        async def listen() -> int:
            listening = socket.create_server(("127.0.0.1", 0))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            server = await asyncio.start_server(
                lambda reader, writer: self._connected(host, port, reader, writer),
                sock=listening,
                limit=_PIECE,
            )
            self._keep(server.serve_forever())
            return int(listening.getsockname()[1])

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    def carry(self, count: int) -> None:
        """Wait until so many bytes have come down the link."""
        asyncio.run_coroutine_threadsafe(self._pass(count, "down"), self._loop).result()

    def cut(self) -> None:
        """Break every connection, and take no more: as when the other side dies."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)  # before it connects
            far.setblocking(False)
            await self._loop.sock_connect(far, (host, port))
            far_reader, far_writer = await asyncio.open_connection(sock=far, limit=_PIECE)
        except OSError:
            writer.close()
            return
        self._keep(self._carry(reader, far_writer, "up"))
        self._keep(self._carry(far_reader, writer, "down"))

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        with suppress(OSError):
            try:
                while piece := await reader.read(_PIECE):
                    await self._pass(len(piece), way)
                    writer.write(piece)
                    await writer.drain()
            finally:
                writer.close()

    async def _pass(self, count: int, way: str) -> None:
        """Wait until so many bytes are through."""
        if way == "down":
            self.down_bytes += count
        else:
            self.up_bytes += count
        now = self._loop.time()
        begin = max(self._free_at[way], now - _BURST_S)
        self._free_at[way] = begin + 8 * count / self.bps
        await asyncio.sleep(self._free_at[way] - now)


class LinkedStore:
    """A store whose bytes cross a link first: for files, which no network is in front of."""

    def __init__(self, store: Store, link: LimitedLink) -> None:
        self.url = store.url
        self._store, self._link = store, link

    def get(self, name: str) -> bytes:
        self._link.carry(self._store.size(name))
        return self._store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._link.carry(length)
        return self._store.get_range(name, start, length)

    def put(self, name: str, data: bytes) -> None:
        self._store.put(name, data)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def names(self, prefix: str = "") -> list[str]:
        return self._store.names(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        return self._store.access(names, writes=writes, endpoint=endpoint, lasts_s=lasts_s)

    def close(self) -> None:
        self._store.close()
