"""Bytes between a worker that computes them and a client that takes them, bounded in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from garfield.split.server.room import Room
from garfield.split.server.spool import Part, SpooledAnswer

PIECE = 256 << 10  # bytes that are sent at once: what a slow client is timed by


class ClientGone(Exception):  # noqa: N818
    """Nobody takes the bytes any more."""


class Outlet:
    """A buffer for one consumer: when it is full, or the memory that it shares with others, more
    goes to disk; where it cannot, the producer is held back."""

    def __init__(
        self, most_bytes: int, spooled: SpooledAnswer | None = None, memory: Room | None = None
    ) -> None:
        self._most, self._spooled = most_bytes, spooled
        self._memory = memory or Room(most_bytes)
        self._pieces: deque[bytes | Part] = deque()
        self._held = 0
        self._ended = False
        self._abandoned = False
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    async def put(self, content: bytes) -> None:
        """Add bytes; waits until there is room, or none are held. ClientGone if all is in vain."""
        added: bytes | Part | None = None
        while not self._abandoned and added is None:
            if (added := self._placed(content)) is None:
                await self._change()
        if added is None:
            raise ClientGone
        self._pieces.append(added)
        self._changed.set()

    def _placed(self, content: bytes) -> bytes | Part | None:
        """Where bytes wait from now on; None if there is room for them nowhere."""
        if self._held + len(content) <= self._most and self._memory.took(len(content)):
            self._held += len(content)
            return content
        if self._spooled is not None and (part := self._spooled.added(content)) is not None:
            return part
        if self._held:
            return None
        self._memory.take_regardless(len(content))  # one message, or nobody would get anything
        self._held += len(content)
        return content

    def end(self, failure: BaseException | None = None) -> None:
        """No more will come; a failure is raised where bytes are taken. The first end counts."""
        if self._ended:
            return
        self._ended, self._failure = True, failure
        self._changed.set()

    def abandon(self) -> None:
        """Nothing will be taken any more."""
        self._abandoned = True
        self._let_go(self._held)
        if self._spooled is not None:
            self._spooled.close()
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
            added = self._pieces.popleft()
            if isinstance(added, Part):
                for piece in added.pieces(PIECE):
                    yield piece
                self._changed.set()
                continue
            for lo in range(0, len(added), PIECE):
                yield memoryview(added)[lo : lo + PIECE]
            self._let_go(len(added))
            self._changed.set()
        if self._failure is not None:
            raise self._failure

    def _let_go(self, count: int) -> None:
        count = min(count, self._held)  # nothing is left once it was abandoned
        self._held -= count
        self._memory.give_back(count)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
