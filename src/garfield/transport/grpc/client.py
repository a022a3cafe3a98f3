"""The side that asks: all peers at once, each again and again until it answers or lies.

What cannot be helped by asking again (a malformed answer, a refusal) ends the
attempt with a reason; a connection that fails or breaks is tried anew, and so is a
peer that has paused for too long, with twice as much patience: on a machine or a link that
is slow for everybody, it would pause as long again. What is late goes on without the pull that
began it: an honest peer that is only a little late is never cut off again and again, and
that it has answered is noted. Until then it is asked for nothing else of that kind, unless
that is of an earlier step: the asker has gone back, or looked for something newer in vain, and
the peer may have the one and not the other yet. What has come is kept until that kind is pulled
again: it counts if the same is asked for, and nobody has to send it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from garfield.core.silence import Reason, Silence, no_answer
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import Gone
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import Attempt, Carrier, Received
from garfield.transport.grpc.links import Link, LinkLost, Links, check_not_refused
from garfield.transport.grpc.options import (
    CLIENT,
    LINK_CLIENT,
    MAX_CALL_S,
    METHOD,
    NAME_KEY,
    aio,
    grpc,
)
from garfield.transport.identity import Identity, PeerAddress

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_DIALLING_S = 0.25  # until a peer that dials in is said not to be there
_READABLE = 120  # characters of somebody else's text that a reason may hold

_REFUSED = Silence(Reason.UNREACHABLE, "connection refused")
_UNKNOWN = Silence(Reason.UNREACHABLE, "its address is not known")
_NOT_DIALLED = Silence(Reason.UNREACHABLE, "has not dialled in")
_LOST = Silence(Reason.DISCONNECTED, "connection lost")
_ANOTHER = Silence(Reason.WRONG_CERTIFICATE, "its certificate names another")
_STRANGER = Silence(Reason.FOREIGN_CERTIFICATE, "its certificate is not from our authority")
_EXPIRED = Silence(Reason.EXPIRED_CERTIFICATE, "its certificate has expired")
_TOO_EARLY = Silence(Reason.EXPIRED_CERTIFICATE, "its certificate is not yet valid by our clock")
_NO_TLS = Silence(Reason.NO_CERTIFICATE, "what listens there does not speak TLS")
_TOO_LONG = Silence(Reason.WRONG_SIZE, "sent a message beyond the limit")

_FROM_GRPC = {  # by what gRPC says, in lower case: its status codes do not tell these apart
    "connection refused": _REFUSED,
    "no such file": _REFUSED,
    "connection reset": _LOST,
    "socket closed": _LOST,
    "broken pipe": _LOST,
    "hostname verification": _ANOTHER,
    "certificate has expired": _EXPIRED,
    "certificate is not yet valid": _TOO_EARLY,
    "certificate_verify_failed": _STRANGER,  # whatever else is wrong with it
    "wrong_version_number": _NO_TLS,
    "received message larger than max": _TOO_LONG,  # a frame of HTTP/2 may be that, from anybody
}
_WORTH_ASKING_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,  # another call of ours was taken for a newer one
}


# -- all peers --------------------------------------------------------------------------------

Ask: TypeAlias = Callable[[Attempt], Awaitable[Received | Gone]]
"""How one peer is asked; WireError if it has failed for good."""


@dataclass(eq=False)
class _Pull:
    """A pull that is waiting for its peers."""

    collector: ReplyCollector
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a peer has answered or failed, and when it is time to look again."""
    over: bool = False
    broken: Exception | None = None
    """What went wrong on our side."""


@dataclass(eq=False)
class _Request:
    """A request under way: on behalf of a pull, or, when that has ended, of none."""

    attempt: Attempt
    pull: _Pull | None
    task: asyncio.Task[Any] | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def is_given_up(self, by: wire.Request) -> bool:
        """Whether nobody waits for it, and it is for a later step than is asked for now.

        The newest vector, if it has begun to come, is let in: it will not take long.
        """
        key = self.attempt.request.key
        if self.pull is not None or (key.is_newest and self.attempt.progress is not None):
            return False
        return by.key.least_step < key.least_step


class Asking:
    """What all peers are being asked for: one request at a time for each peer and kind."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._requests: dict[tuple[str, str], _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[str] = set()
        self._came_late: dict[tuple[str, str], tuple[Attempt, Received]] = {}

    def take_late(self) -> frozenset[str]:
        """Who has answered, since this was asked last, a pull that had ended without it."""
        late, self._late = frozenset(self._late), set()
        return late

    async def ask_all(
        self, attempts: Sequence[Attempt], collector: ReplyCollector, timeout_s: float
    ) -> dict[str, Attempt]:
        """Ask until enough have answered, or everybody has, or time is up; how far each came."""
        loop, pull = asyncio.get_running_loop(), _Pull(collector)
        deadline = loop.time() + timeout_s
        for attempt in attempts:
            self._start(self._one(attempt, pull))
        try:
            while not collector.done:
                left_s = min(collector.left_s(), deadline - loop.time())
                if left_s <= 0:
                    break
                timer = loop.call_later(left_s, pull.changed.set)
                await pull.changed.wait()
                pull.changed.clear()
                timer.cancel()
                if pull.broken is not None:
                    raise pull.broken
        finally:
            pull.over = True
            mine = [request for request in self._requests.values() if request.pull is pull]
            for request in mine:
                request.pull = None
        return {attempt.peer: attempt for attempt in attempts} | {
            request.attempt.peer: request.attempt for request in mine
        }

    async def close(self) -> None:
        """Give up on all that is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._came_late.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, attempt: Attempt, pull: _Pull) -> None:
        """Ask one peer, unless what is under way is the same or outlasts the pull."""
        slot = attempt.peer, attempt.request.key.kind
        while (before := self._requests.get(slot)) is not None:
            if before.attempt.request == attempt.request and before.pull is None:
                before.pull, before.attempt.deadline = pull, attempt.deadline
                return
            if before.task is not None and before.is_given_up(attempt.request):
                before.task.cancel()
            await before.ended.wait()
            if pull.over:
                return
        if self._has_come(attempt, pull):
            return
        request = self._requests[slot] = _Request(attempt, pull, asyncio.current_task())
        try:
            await self._answered(request)
        except Exception as problem:
            if request.pull is not None:
                request.pull.broken = problem
        finally:
            del self._requests[slot]
            request.ended.set()
            if request.pull is not None:
                request.pull.changed.set()

    def _has_come(self, attempt: Attempt, pull: _Pull) -> bool:
        """Whether the answer came while nobody pulled; one to something else is let go of."""
        before, came = self._came_late.pop((attempt.peer, attempt.request.key.kind), (None, None))
        if before is None or came is None:
            return False
        if before.request != attempt.request:
            before.give_back(came.row)
            return False
        self._hand_over(attempt, pull, came)
        pull.changed.set()
        return True

    def _hand_over(self, attempt: Attempt, pull: _Pull, came: Received) -> None:
        if pull.collector.take(attempt.peer, came.row, came.holes, came.step):
            attempt.buffers.lend(attempt.request.key.kind, attempt.peer, came.row)
        else:
            attempt.give_back(came.row)

    async def _answered(self, request: _Request) -> None:
        """Wait for the answer, and hand it to whoever still wants it."""
        attempt, peer = request.attempt, request.attempt.peer
        try:
            came = await self._ask(attempt)
        except wire.WireError as problem:
            if request.pull is not None:
                request.pull.collector.fail(peer, problem.silence)
            return
        if request.pull is None:
            self._late.add(peer)
            if isinstance(came, Received):
                self._came_late[peer, attempt.request.key.kind] = attempt, came
        elif isinstance(came, Gone):
            request.pull.collector.take_gone(peer, came.now)
        else:
            self._hand_over(attempt, request.pull, came)


# -- one peer ---------------------------------------------------------------------------------


def note_failure(attempt: Attempt, problem: Any) -> None:
    """Keep why; raise WireError with it unless it is worth asking again."""
    code, text = problem.code(), str(problem.details()).lower()
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return  # waiting in vain is no failure
    known = (silence for sign, silence in _FROM_GRPC.items() if sign in text)
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[:_READABLE])
    silence = next(known, Silence(Reason.REFUSED, f"{code.name.lower()}: {plain}"))
    if attempt.progress is not None:
        silence = replace(silence, detail=f"{silence}, {attempt.progress}")
    attempt.failure, attempt.progress = silence, None
    if code not in _WORTH_ASKING_AGAIN:
        raise wire.WireError(silence)


class GrpcClient:
    """Channels to the peers, kept open from pull to pull; and the links of those who dial in."""

    def __init__(
        self,
        name: str,
        peers: Mapping[str, PeerAddress],
        credentials: Any | None,
        carriers: Sequence[Carrier],
        links: Links | None = None,
        dialled: Collection[str] = (),
    ) -> None:
        """`links` are those of peers that dial in; to the `dialled` we open some ourselves."""
        self._dialled = frozenset(dialled)
        self._peers = peers
        self._credentials = credentials
        self._carriers = carriers
        self._links = links
        self.metadata = ((NAME_KEY, name),) if credentials is None else ()
        """What goes with every call."""
        self._channels: dict[str, tuple[PeerAddress, Any]] = {}

    async def ask(self, attempt: Attempt) -> Received | Gone:
        """The vector, or the step at which the peer says it is, past the one asked for.

        Raises WireError when the peer has failed for good.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                came = await self._once(attempt)
                if came is not None:
                    return came
            except aio.AioRpcError as problem:
                note_failure(attempt, problem)
            except (OSError, asyncio.TimeoutError):
                pass  # on the way of a carrier, which may choose another
            except wire.WireError as problem:
                if not problem.silence.reason.may_pass:
                    raise
                attempt.failure, attempt.progress = problem.silence, None
                attempt.stall_s *= 2
            if not attempt.left_s():
                raise wire.WireError(attempt.so_far() or no_answer(attempt.timeout_s))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _once(self, attempt: Attempt) -> Received | Gone | None:
        """Ask once, in the way that leads to the peer; None, with the reason kept, if none does."""
        peer = self._peers.get(attempt.peer)
        if peer is not None and peer.dials_in:
            return await self._over_link(attempt)
        channel = await self.channel(attempt.peer)
        if peer is None or channel is None:
            attempt.failure = _UNKNOWN
            return None
        attempt.address = peer.address
        wanted = next(carrier.flag for carrier in self._carriers if carrier.wanted(attempt))
        request = replace(attempt.request, flags=wanted)
        ask, timeout_s = channel.unary_stream(METHOD), min(attempt.left_s(), MAX_CALL_S)
        call = ask(request.encode(), timeout=timeout_s, metadata=self.metadata)
        attempt.is_reached = lambda: channel.get_state() == grpc.ChannelConnectivity.READY
        try:
            return await self._answer(call, await call.read(), request, attempt)
        finally:
            attempt.is_reached = lambda: False
            call.cancel()  # nothing, if it is over

    async def _over_link(self, attempt: Attempt) -> Received | Gone | None:
        """Ask over a link that the peer has opened; vectors come in chunks then."""
        link = None
        if self._links is not None:
            patience_s = min(attempt.left_s() / 2, _DIALLING_S)
            link = await self._links.take(attempt.peer, patience_s)
        if link is None:
            attempt.failure = _NOT_DIALLED
            return None
        attempt.is_reached = lambda: link.is_open
        try:
            return await self._asked_over(link, attempt)
        except LinkLost:
            told = f"{_LOST}, {attempt.progress}" if attempt.progress is not None else str(_LOST)
            attempt.failure, attempt.progress = replace(_LOST, detail=told), None
            return None
        finally:
            attempt.is_reached = lambda: False
            link.cancel()

    async def _asked_over(self, link: Link, attempt: Attempt) -> Received | Gone:
        await link.ask(attempt.request)
        first = await link.read()
        check_not_refused(first)
        return await self._answer(link, first, attempt.request, attempt)

    async def _answer(
        self, call: Any, first: object, request: wire.Request, attempt: Attempt
    ) -> Received | Gone:
        """What the first message says, and a carrier brings."""
        header = wire.Header.decode(first)
        gone = header.gone_at(request)
        if gone is not None:
            return Gone(gone)
        carrier = next(each for each in self._carriers if each.flag == header.flags)
        received = await carrier.fetch(call, header, attempt)
        return received._replace(step=header.step) if request.key.is_newest else received

    # -- channels -------------------------------------------------------------------

    async def channel(self, name: str) -> Any | None:
        """The channel to where the peer is now; None as long as nobody knows."""
        peer = self._peers.get(name)
        if peer is None or peer.dials_in:
            return None
        known, channel = self._channels.get(name, (None, None))
        if known != peer:
            if channel is not None:
                await channel.close()
            channel = self._open(name, peer)
            self._channels[name] = peer, channel
        return channel

    def _open(self, name: str, peer: PeerAddress) -> Any:
        options = dict(CLIENT) | (dict(LINK_CLIENT) if name in self._dialled else {})
        if self._credentials is None:
            return aio.insecure_channel(peer.address, options=list(options.items()))
        options["grpc.ssl_target_name_override"] = Identity(name, peer.role).dns_name
        return aio.secure_channel(peer.address, self._credentials, options=list(options.items()))

    async def close(self) -> None:
        channels = [channel for _, channel in self._channels.values()]
        self._channels.clear()
        for channel in channels:
            await channel.close()
