"""Bytes between a worker that computes them and a client that takes them, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

PIECE = 256 << 10  # bytes that are sent at once: what a slow client is timed by


class ClientGone(Exception):  # noqa: N818
    """Nobody takes the bytes any more."""


class Outlet:
    """A buffer that holds its producer back when it is full. For one producer and one consumer."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self.has_begun = False
        """Something was put: it is too late for another status."""
        self._abandoned = False
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    async def put(self, content: bytes) -> None:
        """Add bytes; waits until there is room, or none are held. ClientGone if all is in vain."""
        while not self._abandoned and self._held and self._held + len(content) > self._most:
            await self._change()
        if self._abandoned:
            raise ClientGone
        self.has_begun = True
        self._pieces.append(content)
        self._held += len(content)
        self._changed.set()

    def end(self, failure: BaseException | None = None) -> None:
        """No more will come; a failure is raised where bytes are taken. The first end counts."""
        if self._ended:
            return
        self._ended, self._failure = True, failure
        self._changed.set()

    def abandon(self) -> None:
        """Nothing will be taken any more."""
        self._abandoned = True
        self._changed.set()

    async def started(self) -> None:
        """Wait for the first bytes; raises the failure if there will be none."""
        while not self._pieces and not self._ended:
            await self._change()
        if not self._pieces and self._failure is not None:
            raise self._failure

    async def pieces(self) -> AsyncIterator[memoryview]:
        """All bytes, in pieces; then the failure, if there was one."""
        while True:
            while not self._pieces and not self._ended:
                await self._change()
            if not self._pieces:
                break
            whole = self._pieces.popleft()
            for lo in range(0, len(whole), PIECE):
                yield memoryview(whole)[lo : lo + PIECE]
            self._held -= len(whole)
            self._changed.set()
        if self._failure is not None:
            raise self._failure

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
