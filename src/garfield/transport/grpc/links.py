"""Links that one side opens and the other asks over: for nodes that nobody can call.

A device behind NAT, or a firewall, can call and cannot be called. So it calls: it opens
streams to the server, each of which stands idle until the server has a question.

    device                                         server
    dialling ── LINK_METHOD ─────────────────────▶ grpc/server ── hold ──▶ Links
             ◀─ one request ────────────────────── Link.ask ◀── take ──── grpc/client
             ── header, chunks; or a refusal ────▶ Link.read
             ── an empty message: that was all ──▶ and the stream ends

A stream serves one question and is replaced by a new one. One that ends before all was said is a
peer that was lost, not one that lied: gRPC does not tell a server the one from the other. Who has
opened it is known from its certificate, as with every call, and whoever opens one answers in that
name alone. If two connections are open in one name, the later one speaks: the other may be left
from before a restart, and gets a link again when the later has had none for a while. A peer holds
at most `MOST` links: of more, its oldest idle ones are ended. What comes in unasked stays in gRPC's
window until somebody asks, and is then held to what was asked for.

This file is the server's side, `dialling.py` the device's. All runs on the transport's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from garfield.core.silence import Reason, Silence
from garfield.transport.grpc import wire
from garfield.transport.grpc.options import MAX_CALL_S, aio

MOST = 8
"""Links of one peer: as many kinds as one asker may wait for at once (`server.KINDS`)."""
_REMEMBERED = 8
"""Connections of one peer that are known to be older than its newest."""
_AWAY_S = 1.0
"""Without a link for so long, a connection is taken to be gone: in less, all of its links may have
served at once and be on their way again."""
_IDLE_S = MAX_CALL_S / 2  # a stream has a deadline: it is renewed before a transfer could meet it

END = b""
"""The last message of an answer; no chunk is empty."""
_NO = b"GFn1"
_FOR_GOOD, _FOR_NOW = b"\x01", b"\x02"
_REFUSED = Silence(Reason.REFUSED, "that is not for everybody")


class LinkLost(Exception):  # noqa: N818 (a signal between the parts of this folder)
    """The stream has ended, and another one is worth a try."""


def refusal(for_good: bool) -> bytes:
    """What is sent instead of a header by who will not answer, or not this time."""
    return _NO + (_FOR_GOOD if for_good else _FOR_NOW)


def check_not_refused(message: object) -> None:
    """Raise WireError if a first message is a refusal for good, LinkLost if it is one for now."""
    if isinstance(message, bytes) and message[: len(_NO)] == _NO:
        if message == _NO + _FOR_NOW:
            raise LinkLost
        raise wire.WireError(_REFUSED)


class Link:
    """One stream that a peer has opened, as the call that it stands for."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._over = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancelled = False

    @property
    def is_open(self) -> bool:
        """Whether the peer is still there."""
        return not self._lost.done()

    async def ask(self, request: wire.Request) -> None:
        """Send the one question that it is for; LinkLost if the peer has gone."""
        await self._done(self._context.write(request.encode()))

    async def read(self) -> object:
        """The next message, or the end, as a call gives it; LinkLost if the peer has gone."""
        message = await self._done(self._context.read())
        if message is aio.EOF:
            raise LinkLost
        return aio.EOF if message == END else message

    def cancel(self) -> None:
        """End the stream; who waits for a message of it is told by CancelledError, as by gRPC."""
        self._cancelled = True
        self._over.set()
        self._lose()

    async def held(self) -> None:
        """Stay open until the question is answered; what ends this early has lost the peer."""
        try:
            await self._over.wait()
        finally:
            self._lose()

    async def _done(self, work: Any) -> Any:
        """The result of something that gRPC does, however that ends.

        It goes on by itself if we are cancelled: gRPC takes no message back.
        """
        doing = asyncio.ensure_future(work)
        doing.add_done_callback(_noticed)
        await asyncio.wait({doing, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        if self._cancelled:
            raise asyncio.CancelledError
        if not doing.done() or doing.cancelled() or doing.exception() is not None:
            raise LinkLost
        return doing.result()

    def _lose(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)


def _noticed(work: asyncio.Future[Any]) -> None:
    """A peer that left is no error; asyncio would report it as one."""
    if not work.cancelled():
        work.exception()


class _Held:
    """The links of one peer, which are of one connection: the one that it opened last."""

    def __init__(self) -> None:
        self.idle: list[Link] = []
        self.open = 0
        self.connection: str | None = None
        self.older: list[str] = []
        """Connections that had links before, and get none while a later one has."""
        self.none_since_s = 0.0

    def admits(self, connection: str, now_s: float) -> bool:
        """Whether one more link over that connection may be held."""
        if not self.open and now_s - self.none_since_s >= _AWAY_S:
            self.connection, self.older = None, []  # any connection is as good as another
        if connection in self.older:
            return False
        if self.connection != connection:
            if self.connection is not None:
                self.older = [*self.older[1 - _REMEMBERED :], self.connection]
            self.connection = connection
            while self.idle:
                self.idle.pop().cancel()
        return self.open < MOST or bool(self.idle)

    def opened(self, link: Link) -> None:
        if self.open >= MOST:
            self.idle.pop(0).cancel()
        self.idle.append(link)
        self.open += 1

    def ended(self, link: Link, now_s: float) -> None:
        self.open -= 1
        self.none_since_s = now_s
        if link in self.idle:
            self.idle.remove(link)


class Links:
    """The links that peers have opened to this node."""

    def __init__(self, may_dial: Callable[[str], bool]) -> None:
        """`may_dial` says of a peer whether it is one that we wait to be called by."""
        self._may_dial = may_dial
        self._held: dict[str, _Held] = {}  # of known peers only
        self._came = asyncio.Event()

    def count(self, peer: str) -> int:
        """How many a peer has now."""
        return self._held[peer].open if peer in self._held else 0

    async def hold(self, peer: str, context: Any) -> bool:
        """Keep a stream until it has served; False if that peer shall have none, or no more."""
        if not self._may_dial(peer):
            return False
        held = self._held.setdefault(peer, _Held())
        loop = asyncio.get_running_loop()
        if not held.admits(str(context.peer()), loop.time()):
            return False
        link = Link(context)
        held.opened(link)
        self._came.set()
        self._came = asyncio.Event()
        ends = loop.call_later(_IDLE_S, _end_if_idle, held, link)
        try:
            await link.held()
        finally:
            ends.cancel()
            held.ended(link, loop.time())
        return True

    async def take(self, peer: str, timeout_s: float) -> Link | None:
        """A link of that peer, the newest first; None if there is none in that time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (peer in self._held and self._held[peer].idle):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return None
            coming = asyncio.ensure_future(self._came.wait())
            try:
                await asyncio.wait({coming}, timeout=left_s)
            finally:
                coming.cancel()
        return self._held[peer].idle.pop()


def _end_if_idle(held: _Held, link: Link) -> None:
    if link in held.idle:
        link.cancel()
