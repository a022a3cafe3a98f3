"""The side that answers: long polls on a node's outbox, then its vectors as fast as they are read.

A call is identified, decoded, given a turn, kept until the node has an answer,
and answered by the first carrier that can. An asker has one turn per kind: a
newer call ends an older one, so nobody can make us hold more than that. It is the same for
what is asked over a link that we have opened (`dialling.py`). All runs on the transport's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from garfield.core.errors import ConfigError
from garfield.transport.contract import Answer, Answerer, Gone, Key, NotYet, Ready, Refused
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import Carrier
from garfield.transport.grpc.connections import Connections, allowed_connections
from garfield.transport.grpc.links import Links
from garfield.transport.grpc.options import (
    LINK_METHOD,
    LINK_SERVER,
    MAX_CALL_S,
    MAX_CONNECTIONS,
    METHOD,
    SERVER,
    aio,
    grpc,
)

KINDS = 8
"""How many kinds one asker may wait for at once; what is being sent to it pins no more vectors."""

CALLS = 16
"""How many calls of one asker may be open. One that has ended stays open, with a chunk in
memory, as long as its asker does not read: gRPC lets nobody take a message back."""

Identify = Callable[[Any], str | None]
"""What finds the asker's name in a call's context; None for a stranger."""


class Polls:
    """A node's answers, which can be waited for."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Something was published: everybody who waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def settled(self, asker: str, key: Key) -> Ready | Gone | Refused:
        """The answer, as soon as there is one."""
        answer: Answer = self._answerer.answer(asker, key)
        while isinstance(answer, NotYet):
            await self._changed.wait()  # no publication is missed: it is announced on this loop
            answer = self._answerer.answer(asker, key)
        if isinstance(answer, Ready) and answer.after_s > 0:
            await asyncio.sleep(answer.after_s)
        return answer


def _noticed(writing: asyncio.Future[None]) -> None:
    """An asker that left while we wrote is no error; asyncio would report it as one."""
    if not writing.cancelled():
        writing.exception()


class Call:
    """One call, being waited for or sent to."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.asker = ""
        """Who is calling, once that is known."""
        self._writing: asyncio.Future[None] | None = None

    @property
    def origin(self) -> str:
        """Where the call comes from, as gRPC says it."""
        return str(self._context.peer())

    async def write(self, message: bytes) -> None:
        """Send a message, waiting until the asker has room for it."""
        self._writing = asyncio.ensure_future(self._context.write(message))
        self._writing.add_done_callback(_noticed)
        await asyncio.shield(self._writing)

    async def abort(self, code: Any, why: str) -> NoReturn:
        """End the call once what is on its way has left: a status sent after it would hide it."""
        await self.settle()
        await self._context.abort(code, why)
        raise AssertionError("abort raises")

    async def settle(self) -> None:
        """Wait until nothing is on its way. An asker that has left cancels the call, silently."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
            if self._writing.cancelled() or self._writing.exception() is not None:
                raise asyncio.CancelledError


class Turns:
    """The calls of one asker: the newest of each kind, and those that are ending."""

    def __init__(self) -> None:
        self.open = 0
        self._newest: dict[str, asyncio.Task[None]] = {}

    def begin(self, kind: str, work: asyncio.Task[None]) -> None:
        """This one instead of an older one."""
        older = self._newest.pop(kind, None)
        if older is None and len(self._newest) >= KINDS:
            older = self._newest.pop(next(iter(self._newest)))  # the oldest
        if older is not None:
            older.cancel()
        self._newest[kind] = work

    def end(self, kind: str, work: asyncio.Task[None]) -> None:
        if self._newest.get(kind) is work:
            del self._newest[kind]


class Answering:
    """Answers what known askers ask for, whichever way the question came."""

    def __init__(self, polls: Polls, carriers: Sequence[Carrier]) -> None:
        self._polls = polls
        self._carriers = carriers
        self._turns: dict[str, Turns] = {}  # of known askers only

    async def answer(self, message: bytes, call: Call) -> None:
        """Answer the request on a call whose asker is known."""
        try:
            request = wire.Request.decode(message)
        except wire.WireError as problem:
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, str(problem))
        turns = self._turns.setdefault(call.asker, Turns())
        if turns.open >= CALLS:
            await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "asks and does not read")
        turns.open += 1
        try:
            await self._take_turn(turns, request, call)
        finally:
            turns.open -= 1

    async def _take_turn(self, turns: Turns, request: wire.Request, call: Call) -> None:
        work = asyncio.ensure_future(self._answer(request, call))
        turns.begin(request.key.kind, work)
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()
            turns.end(request.key.kind, work)
        if work.cancelled():
            await call.abort(grpc.StatusCode.ABORTED, "asked again meanwhile")
        await call.settle()
        work.result()

    async def _answer(self, request: wire.Request, call: Call) -> None:
        key = request.key
        answer = await self._polls.settled(call.asker, key)
        if isinstance(answer, Gone):
            await call.write(wire.Header(wire.Status.GONE, answer.now).encode())
            return
        if isinstance(answer, Refused):
            await call.abort(grpc.StatusCode.PERMISSION_DENIED, "that is not for everybody")
        total = len(wire.raw(answer.payload))
        step = key.step if answer.step is None else answer.step
        header = wire.Header(wire.Status.READY, step, key.round, total)
        if total != request.total:
            await call.write(header.encode())  # the asker knows enough
            return
        for carrier in self._carriers:  # the last can carry anything
            if carrier.flag in request.flags and await carrier.send(answer, key, header, call):
                return


class GrpcServer:
    """A port, and the calls that come in through it."""

    def __init__(self, answering: Answering, identify: Identify, links: Links | None) -> None:
        """`links` are where peers that dial in leave theirs; without it, they are refused."""
        self._answering = answering
        self._identify = identify
        self._links = links
        allowed = allowed_connections()
        self._connections = Connections(allowed)
        self._watching: asyncio.Task[None] | None = None
        options = dict(SERVER) | {MAX_CONNECTIONS: allowed}
        if links is not None:
            options |= dict(LINK_SERVER)
        self._server: Any = aio.server(options=list(options.items()))
        self._add(METHOD, grpc.unary_stream_rpc_method_handler(self._handle))
        if links is not None:
            self._add(LINK_METHOD, grpc.stream_stream_rpc_method_handler(self._handle_link))

    def _add(self, name: str, handler: Any) -> None:
        service, method = name.strip("/").split("/")
        handlers = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((handlers,))

    async def start(self, listen: str, credentials: Any | None) -> int:
        """Listen there; the port, which the system chooses if it is given as 0."""
        try:
            if credentials is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, credentials)
        except RuntimeError as problem:
            raise ConfigError(
                f"Cannot listen on {listen}: {problem}. Free it, or give port 0 to have one chosen."
            ) from None
        await self._server.start()
        if not listen.startswith("unix:"):
            self._watching = asyncio.ensure_future(self._connections.watch(int(port)))
        return int(port)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._server.stop(grace=None)

    # -- one call -------------------------------------------------------------------

    async def _handle(self, message: bytes, context: Any) -> None:
        call = await self._identified(context)
        await self._answering.answer(message, call)

    async def _handle_link(self, messages: Any, context: Any) -> None:
        call = await self._identified(context)
        assert self._links is not None
        if not await self._links.hold(call.asker, context):
            await call.abort(grpc.StatusCode.PERMISSION_DENIED, "this peer is called, and not held")

    async def _identified(self, context: Any) -> Call:
        """The call of a known peer, which has a deadline; others are ended."""
        call = Call(context)
        asker = self._identify(context)
        if asker is None:  # perhaps only not known yet: it may ask again
            await call.abort(grpc.StatusCode.UNAVAILABLE, "the asker is not known here")
        self._connections.identified(call.origin, asker)
        left_s = context.time_remaining()
        if left_s is None or left_s > MAX_CALL_S + 60:  # clocks differ
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call needs a deadline")
        call.asker = asker
        return call
