"""The side that asks: one peer, one key, again and again until it answers or lies.

What cannot be helped by asking again (a malformed answer, a refusal) ends the
attempt with a reason; a connection that fails or breaks is tried anew. The
transport cancels what is late, and reads from the attempt how far it had come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from garfield.core.silence import NOT_FINITE, Reason, Silence
from garfield.transport.contract import Payload
from garfield.transport.datagrams.client import DatagramClient
from garfield.transport.finite import all_finite_by_pieces
from garfield.transport.grpc import wire
from garfield.transport.grpc.buffers import Buffers
from garfield.transport.grpc.options import CLIENT, MAX_CALL_S, METHOD, NAME_KEY, aio, grpc
from garfield.transport.identity import Identity, Peer
from garfield.transport.pulling import Attempt
from garfield.transport.same_host import descriptors

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_HANDOVER_S = 2.0  # for a descriptor, on one host; then the vector itself is asked for
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


def note_failure(attempt: Attempt, problem: Any) -> None:
    """Keep why; raise WireError with it unless it is worth asking again."""
    code, text = problem.code(), str(problem.details()).lower()
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return  # waiting in vain is no failure
    known = (silence for sign, silence in _FROM_GRPC.items() if sign in text)
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[:_READABLE])
    silence = next(known, Silence(Reason.REFUSED, f"{code.name.lower()}: {plain}"))
    if attempt.filling is not None:
        silence = replace(silence, detail=f"{silence}, {attempt.filling}")
    attempt.failure, attempt.filling = silence, None
    if code != grpc.StatusCode.UNAVAILABLE:
        raise wire.WireError(silence)


async def _read(call: Any, attempt: Attempt) -> object:
    """The next message, unless it takes too long.

    Not by asyncio.wait_for: before Python 3.12 it may swallow that we are being cancelled.
    """
    stalled = False

    def give_up() -> None:
        nonlocal stalled
        stalled = True
        call.cancel()

    timer = asyncio.get_running_loop().call_later(attempt.stall_s, give_up)
    try:
        return await call.read()
    except asyncio.CancelledError:
        if not stalled:
            raise
        detail = f"stalled for {attempt.stall_s:g} s, {attempt.filling}"
        raise wire.WireError(Silence(Reason.STALLED, detail)) from None
    finally:
        timer.cancel()


class GrpcClient:
    """Channels to the peers, kept open from pull to pull."""

    def __init__(
        self,
        name: str,
        peers: Mapping[str, Peer],
        buffers: Buffers,
        credentials: Any | None,
        same_host: Path | None,
    ) -> None:
        self._peers = peers
        self._buffers = buffers
        self._credentials = credentials
        self._same_host = same_host
        self._metadata = ((NAME_KEY, name),) if credentials is None else ()
        self._channels: dict[str, tuple[Peer, Any]] = {}
        self.datagrams: DatagramClient | None = None
        """For links on which vectors come that way."""
        self.bytes_received = 0

    async def ask(self, attempt: Attempt) -> Payload | int:
        """The vector, or the step at which the peer says it is, past the one asked for.

        Raises WireError when the peer has failed for good.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            channel = await self._channel(attempt.peer)
            if channel is None:
                attempt.failure = _UNKNOWN
            else:
                try:
                    return await self._once(channel, attempt)
                except aio.AioRpcError as problem:
                    note_failure(attempt, problem)
                except (OSError, asyncio.TimeoutError):  # on the way to a descriptor
                    attempt.by_stream = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _once(self, channel: Any, attempt: Attempt) -> Payload | int:
        request = replace(attempt.request, flags=self._ways(attempt))
        ask, timeout_s = channel.unary_stream(METHOD), min(attempt.left_s(), MAX_CALL_S)
        call = ask(request.encode(), timeout=timeout_s, metadata=self._metadata)
        try:
            header = wire.Header.decode(await call.read())
            gone = header.gone_at(request)
            if gone is not None:
                return gone
            if self.datagrams is not None and wire.Flag.DATAGRAMS in header.flags:
                address = self._channels[attempt.peer][0].address
                return await self.datagrams.fetch(call, attempt, address)
            if header.flags:
                return await self._fetch(header, attempt)
            return await self._receive(call, attempt)
        except asyncio.CancelledError:
            if channel.get_state() == grpc.ChannelConnectivity.READY:
                attempt.failure = None  # by now it has been reached, and has not answered
            raise
        finally:
            call.cancel()  # nothing, if it is over

    async def _receive(self, call: Any, attempt: Attempt) -> Payload:
        kind, length = attempt.request.key.kind, attempt.request.length
        row = self._buffers.take(kind, attempt.peer, length)
        filling = attempt.filling = wire.Filling(row)
        try:
            while not filling.complete:
                filling.add(await _read(call, attempt))
            if await _read(call, attempt) is not aio.EOF:
                raise wire.wrong_size(f"sent more than {row.nbytes} bytes")
        finally:
            self.bytes_received += filling.arrived
            if not filling.complete:
                self._buffers.give(kind, attempt.peer, row)
        return row

    # -- other ways -----------------------------------------------------------------

    def _ways(self, attempt: Attempt) -> wire.Flag:
        """Datagrams, on a lossy link; a descriptor will do, if the peer is on this host."""
        if self.datagrams is not None and self.datagrams.serves(attempt):
            return wire.Flag.DATAGRAMS
        if self._same_host is None or attempt.by_stream:
            return wire.Flag.NONE
        here = descriptors.socket_path(self._same_host, attempt.peer).exists()
        return wire.Flag.DESCRIPTOR if here else wire.Flag.NONE

    async def _fetch(self, header: wire.Header, attempt: Attempt) -> Payload:
        assert self._same_host is not None  # or the header would have been refused
        work = descriptors.fetch(self._same_host, attempt.peer, header.ticket, attempt.request)
        row = await asyncio.wait_for(work, min(attempt.stall_s, _HANDOVER_S))
        if not await all_finite_by_pieces(row):
            raise wire.WireError(NOT_FINITE)
        self.bytes_received += row.nbytes
        return row

    # -- channels -------------------------------------------------------------------

    async def _channel(self, name: str) -> Any | None:
        """To where the peer is now; None as long as nobody knows."""
        peer = self._peers.get(name)
        if peer is None:
            return None
        known, channel = self._channels.get(name, (None, None))
        if known != peer:
            if channel is not None:
                await channel.close()
            channel = self._open(name, peer)
            self._channels[name] = peer, channel
        return channel

    def _open(self, name: str, peer: Peer) -> Any:
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
