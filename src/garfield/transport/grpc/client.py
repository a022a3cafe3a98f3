"""The side that asks: all peers at once, each again and again until it answers or lies.

What cannot be helped by asking again (a malformed answer, a refusal) ends the
attempt with a reason; a connection that fails or breaks is tried anew. What is
late is cancelled, and its attempt tells how far it had come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from garfield.core.silence import Reason, Silence
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import Gone
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import Attempt, Carrier, Received
from garfield.transport.grpc.options import CLIENT, MAX_CALL_S, METHOD, NAME_KEY, aio, grpc
from garfield.transport.identity import Identity, PeerAddress

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_READABLE = 120  # characters of somebody else's text that a reason may hold

_REFUSED = Silence(Reason.UNREACHABLE, "connection refused")
_UNKNOWN = Silence(Reason.UNREACHABLE, "its address is not known")
_LOST = Silence(Reason.DISCONNECTED, "connection lost")
_ANOTHER = Silence(Reason.WRONG_CERTIFICATE, "its certificate names another")
_STRANGER = Silence(Reason.WRONG_CERTIFICATE, "its certificate is not from our authority")
_TOO_LONG = Silence(Reason.WRONG_SIZE, "sent a message beyond the limit")

_FROM_GRPC = {  # by what gRPC says, in lower case: its status codes do not tell these apart
    "connection refused": _REFUSED,
    "no such file": _REFUSED,
    "connection reset": _LOST,
    "socket closed": _LOST,
    "broken pipe": _LOST,
    "hostname verification": _ANOTHER,
    "certificate_verify_failed": _STRANGER,
    "larger than max": _TOO_LONG,
}


# -- all peers --------------------------------------------------------------------------------

Ask: TypeAlias = Callable[[Attempt], Awaitable[Received | Gone]]
"""How one peer is asked; WireError if it has failed for good."""


class _Enough(Exception):  # noqa: N818 (a signal, not an error)
    """The peer that just answered was the last one needed."""


async def ask_all(
    attempts: Sequence[Attempt], collector: ReplyCollector, ask: Ask, timeout_s: float
) -> None:
    """Ask until enough have answered, or everybody has, or time is up; then cancel the rest."""
    tasks = [asyncio.ensure_future(_ask_one(attempt, collector, ask)) for attempt in attempts]
    try:
        until_raised = asyncio.FIRST_EXCEPTION
        await asyncio.wait(tasks, timeout=timeout_s, return_when=until_raised)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, _Enough):
            raise end


async def _ask_one(attempt: Attempt, collector: ReplyCollector, ask: Ask) -> None:
    peer, kind = attempt.peer, attempt.request.key.kind
    try:
        came = await ask(attempt)
    except wire.WireError as problem:
        collector.fail(peer, problem.silence)
        return
    if isinstance(came, Gone):
        collector.take_gone(peer, came.now)
    elif collector.take(peer, came.row, came.holes):
        attempt.buffers.lend(kind, peer, came.row)
    else:
        attempt.give_back(came.row)
    if collector.enough:
        raise _Enough


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
    if code != grpc.StatusCode.UNAVAILABLE:
        raise wire.WireError(silence)


class GrpcClient:
    """Channels to the peers, kept open from pull to pull."""

    def __init__(
        self,
        name: str,
        peers: Mapping[str, PeerAddress],
        credentials: Any | None,
        carriers: Sequence[Carrier],
    ) -> None:
        self._peers = peers
        self._credentials = credentials
        self._carriers = carriers
        self._metadata = ((NAME_KEY, name),) if credentials is None else ()
        self._channels: dict[str, tuple[PeerAddress, Any]] = {}

    async def ask(self, attempt: Attempt) -> Received | Gone:
        """The vector, or the step at which the peer says it is, past the one asked for.

        Raises WireError when the peer has failed for good.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            channel = await self._channel(attempt)
            if channel is None:
                attempt.failure = _UNKNOWN
            else:
                try:
                    return await self._once(channel, attempt)
                except aio.AioRpcError as problem:
                    note_failure(attempt, problem)
                except (OSError, asyncio.TimeoutError):
                    pass  # on the way of a carrier, which may choose another
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _once(self, channel: Any, attempt: Attempt) -> Received | Gone:
        wanted = next(carrier.flag for carrier in self._carriers if carrier.wanted(attempt))
        request = replace(attempt.request, flags=wanted)
        ask, timeout_s = channel.unary_stream(METHOD), min(attempt.left_s(), MAX_CALL_S)
        call = ask(request.encode(), timeout=timeout_s, metadata=self._metadata)
        try:
            header = wire.Header.decode(await call.read())
            gone = header.gone_at(request)
            if gone is not None:
                return Gone(gone)
            carrier = next(each for each in self._carriers if each.flag == header.flags)
            return await carrier.fetch(call, header, attempt)
        except asyncio.CancelledError:
            if channel.get_state() == grpc.ChannelConnectivity.READY:
                attempt.failure = None  # by now it has been reached, and has not answered
            raise
        finally:
            call.cancel()  # nothing, if it is over

    # -- channels -------------------------------------------------------------------

    async def _channel(self, attempt: Attempt) -> Any | None:
        """The channel to where the peer is now; None as long as nobody knows."""
        name = attempt.peer
        peer = self._peers.get(name)
        if peer is None:
            return None
        attempt.address = peer.address
        known, channel = self._channels.get(name, (None, None))
        if known != peer:
            if channel is not None:
                await channel.close()
            channel = self._open(name, peer)
            self._channels[name] = peer, channel
        return channel

    def _open(self, name: str, peer: PeerAddress) -> Any:
        if self._credentials is None:
            return aio.insecure_channel(peer.address, options=CLIENT)
        expected = Identity(name, peer.role).dns_name
        options = [*CLIENT, ("grpc.ssl_target_name_override", expected)]
        return aio.secure_channel(peer.address, self._credentials, options=options)

    async def close(self) -> None:
        channels = [channel for _, channel in self._channels.values()]
        self._channels.clear()
        for channel in channels:
            await channel.close()
