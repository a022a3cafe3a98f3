"""The side that opens links, and answers over them: see `links.py`.

To each peer that shall be able to ask us, a few streams are kept open, over the same connection
that we ask it by. One that breaks, or ends before anything was asked over it, is opened again
after a pause that doubles up to `_LONGEST_PAUSE_S`, each of a length of its own: hundreds of
devices whose server has come back do not all knock at once. Who asks is known from the certificate
of the peer that was called; what it may have, the outbox says, as to everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

from garfield.transport.grpc.client import GrpcClient
from garfield.transport.grpc.links import END, MOST, refusal
from garfield.transport.grpc.options import LINK_METHOD, MAX_CALL_S, aio, grpc
from garfield.transport.grpc.server import Answering, Call

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_PATIENCE_S = 2.0  # for streams to end by themselves
_FOR_NOW = {grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED}


class _Ended(Exception):  # noqa: N818 (a signal between the parts of this file)
    """A question that will not be answered: that has been said."""


class _LinkContext:
    """A stream that we have opened, as the context of the call that comes over it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def peer(self) -> str:
        return "link:"

    async def write(self, message: bytes) -> None:
        await self._stream.write(message)

    async def abort(self, code: Any, why: str) -> None:
        await self._stream.write(refusal(for_good=code not in _FOR_NOW))
        raise _Ended(why)


class Dialling:
    """The links of this node to the peers that ask it over them."""

    def __init__(self, name: str, dialled: Iterable[str], client: GrpcClient) -> None:
        self._dialled = tuple(dialled)
        self._client = client
        self._chance = Random(name)
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: set[Any] = set()
        self._closed = asyncio.Event()

    def start(self, answering: Answering) -> None:
        """Open links, and keep them open until closed."""
        self._tasks = [
            asyncio.ensure_future(self._keep_link(peer, answering))
            for peer in self._dialled
            for _ in range(MOST)
        ]

    async def close(self) -> None:
        """End the streams, and with them what waits for them.

        Not the other way round: gRPC would finish what a cancelled task has left under way after
        this loop is closed, and trip over that in another transport's.
        """
        self._closed.set()
        for stream in self._streams:
            stream.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _keep_link(self, peer: str, answering: Answering) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed.is_set():
            if await self._serve_once(peer, answering):
                pause_s = _FIRST_PAUSE_S
            else:
                await self._pause(pause_s * self._chance.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        closed = asyncio.ensure_future(self._closed.wait())
        await asyncio.wait({closed}, timeout=seconds)
        closed.cancel()

    async def _serve_once(self, peer: str, answering: Answering) -> bool:
        """Open one link and answer what is asked over it; whether anything was."""
        channel = await self._client.channel(peer)
        if channel is None or self._closed.is_set():
            return False
        opened = channel.stream_stream(LINK_METHOD)
        stream = opened(timeout=MAX_CALL_S, metadata=self._client.metadata)
        self._streams.add(stream)
        try:
            message = await stream.read()
            if not isinstance(message, bytes):
                return False
            call = Call(_LinkContext(stream))
            call.asker = peer
            await self._answer(stream, answering.answer(message, call))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return False
        except asyncio.CancelledError:  # so gRPC says that the stream was cancelled on our side
            return False
        finally:
            self._streams.discard(stream)
            stream.cancel()  # nothing, if it is over
        return True

    async def _answer(self, stream: Any, answer: Any) -> None:
        """Answer unless the asker ends the stream, and let it do so when it has all."""
        answering = asyncio.ensure_future(answer)
        ended = asyncio.ensure_future(stream.code())
        try:
            await asyncio.wait({answering, ended}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                with suppress(_Ended):
                    answering.result()
                await stream.write(END)
                await stream.done_writing()
                await asyncio.wait({ended})
        finally:
            for task in (answering, ended):
                task.cancel()
            await asyncio.gather(answering, ended, return_exceptions=True)
