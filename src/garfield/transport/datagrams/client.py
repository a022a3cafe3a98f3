"""The side that fetches by datagrams: asks for windows, and takes what comes until time is up.

The socket is connected to the one peer, so the system itself drops what comes
from elsewhere. A block changes a row only if its seal fits, it has exactly the
size that is due at its place, and it had not come before. A transfer ends when
every window is closed, or at the round's time-out: half of the time that the
pull has, and in any case before its end. Then what is missing is filled; a peer
of which nothing came is silent.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import numpy as np

from garfield.core.types import Flags
from garfield.transport.contract import Holes, Payload
from garfield.transport.datagrams.filling import Filler
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.datagrams.packets import (
    ITEM,
    LARGEST,
    Offer,
    Seal,
    blocks_of,
    most_at_once,
    nothing_came,
)
from garfield.transport.datagrams.windows import Windows, partition
from garfield.transport.grpc.carriers import Attempt, Received, check_finite
from garfield.transport.grpc.wire import WireError, raw

_AT_ONCE = 64  # datagrams that are taken before others on the loop have their turn
_BUFFER = 1 << 20
_MARGIN = 0.05  # of the pull's time, to fill what is missing before it is over


class Assembly:
    """A row that fills up block by block, in any order."""

    def __init__(self, row: Payload, block: int) -> None:
        self._into = raw(row)
        self._bytes = block * ITEM
        self.missing = np.ones(blocks_of(len(row), block), np.bool_)

    def __str__(self) -> str:
        return f"sent {(~self.missing).sum()} of {len(self.missing)} datagrams"

    def add(self, at: int, body: bytes) -> bool:
        """Take a block if it is due; whether it was."""
        if at >= len(self.missing) or not self.missing[at]:
            return False
        lo = at * self._bytes
        if len(body) != min(self._bytes, len(self._into) - lo):
            return False
        self._into[lo : lo + len(body)] = body
        self.missing[at] = False
        return True


class Transfer:
    """One row being fetched."""

    def __init__(self, connected: socket.socket, offer: Offer, row: Payload) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._seal = Seal(offer.session, offer.key)
        self.assembly = Assembly(row, offer.block)
        blocks = len(self.assembly.missing)
        self._windows = Windows([*partition(blocks, most_at_once(offer.block))])
        self._finished = self._loop.create_future()
        self._into = memoryview(bytearray(LARGEST))
        self._requests = 0
        self.dropped = 0
        """Datagrams that did not fit."""

    async def run(self, ended: asyncio.Future[object], deadline: float) -> None:
        """Fetch until all windows are closed, the clock shows `deadline`, or the call ended."""
        self._loop.add_reader(self._socket, self._receive)
        try:
            self._ask()
            while not self._finished.done() and not ended.done():
                now = self._loop.time()
                if now >= deadline:
                    return
                wait_s = min(deadline - now, self._windows.next_s(now))
                await asyncio.wait(
                    {self._finished, ended}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                self._ask()
        finally:
            self._loop.remove_reader(self._socket)

    def _ask(self) -> None:
        for window in self._windows.due(self._loop.time()):
            with suppress(OSError):  # no room, or word that the peer is gone: as if lost
                self._socket.send(self._seal.request(self._requests, window))
            self._requests += 1
        if self._windows.done and not self._finished.done():
            self._finished.set_result(None)

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                size = self._socket.recv_into(self._into)
            except OSError:  # nothing more, or word that the peer is gone
                break
            opened = self._seal.open_block(self._into[:size])
            if opened is not None and self.assembly.add(*opened):
                self._windows.came(opened[0], self._loop.time())
            else:
                self.dropped += 1
        self._ask()


class DatagramClient:
    """Fetches one node's rows over its lossy links."""

    def __init__(self, name: str, links: LossyLinks) -> None:
        self._name = name
        self._links = links
        self._filler = Filler(name, links)
        self.bytes_received = 0
        self.dropped = 0

    def serves(self, attempt: Attempt) -> bool:
        """Whether what is asked for is sent by datagrams."""
        key = attempt.request.key
        return not key.is_newest and self._links.between(self._name, attempt.peer, key.kind)

    async def fetch(self, call: Any, attempt: Attempt) -> Received:
        """The row, filled; `call` is the gRPC call on which it was offered."""
        offer = Offer.decode(await call.read())
        row = attempt.take_row()
        try:
            missing = await self._transfer(call, attempt, offer, row)
            holes = Holes(missing, offer.block)
            await self._finish(attempt, row, holes)
        except BaseException:
            attempt.give_back(row)
            raise
        return Received(row, holes)

    async def _transfer(self, call: Any, attempt: Attempt, offer: Offer, row: Payload) -> Flags:
        connected = await _connect(attempt.address, offer.port)
        ended = asyncio.ensure_future(call.read())  # nothing more is said, unless the peer goes
        try:
            transfer = Transfer(connected, offer, row)
            attempt.progress = transfer.assembly
            left_s = attempt.left_s()
            time_s = min(attempt.stall_s, left_s - _MARGIN * min(left_s, 1.0))
            await transfer.run(ended, asyncio.get_running_loop().time() + time_s)
        finally:
            connected.close()
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
        missing = transfer.assembly.missing
        self.dropped += transfer.dropped
        if missing.any() and not ended.cancelled() and (broken := ended.exception()):
            raise broken  # the connection: the peer is asked again
        if missing.all():
            raise WireError(nothing_came(len(missing)))
        return missing

    async def _finish(self, attempt: Attempt, row: Payload, holes: Holes) -> None:
        key, lost = attempt.request.key, 0
        if holes.missing.any():
            where = holes.missing_values(len(row))
            row[where] = 0  # there is anything, from before
            lost = int(where.sum())
        await check_finite(row)
        self.bytes_received += row.nbytes - ITEM * lost
        self._filler.complete(attempt.peer, key, row, holes)


async def _connect(address: str, port: int) -> socket.socket:
    """A socket that hears nobody but that port of the peer's host.

    Not bound to where we listen: the system chooses our address as it does for gRPC, and that
    is the one which the peer answers.
    """
    host = "127.0.0.1" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]")
    try:
        family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
        target: Any = (host, port)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, target = found[0][0], found[0][4]
    connected = socket.socket(family, socket.SOCK_DGRAM)
    connected.setblocking(False)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    try:
        connected.connect(target)
    except OSError:
        connected.close()
        raise
    return connected
