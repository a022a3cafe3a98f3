"""Where descriptors change hands: a unix socket per node, in a directory that only we can enter.

A peer that is asked over gRPC for a long vector answers with a ticket; whoever
holds the ticket shows it at the peer's socket, and is given the descriptor.
Which socket that is follows from the peer's name and our own settings, never
from anything that a peer sent. Both ends check that the other is the same user.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.transport.contract import Key, Payload
from garfield.transport.grpc import wire
from garfield.transport.same_host import memfd

KEPT = 4
"""How many published vectors have a sealed copy at once."""

_MOST_CONNECTIONS = 64  # at the socket at once
_PATIENCE_S = 5.0  # with one connection


def private(directory: Path | str) -> Path:
    """The directory for the sockets, made if need be; refused if others can enter it."""
    path = Path(directory).absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{path} can be entered by other users, who could then pose as peers. "
            f"Use a directory of your own: chmod 700 {path}"
        )
    return path


def socket_path(directory: Path, name: str) -> Path:
    """Where the descriptors of a node are handed out."""
    return directory / f"{name}.descriptors"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Another name for it while inside: a socket's may have 107 bytes, a directory's has more."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class DescriptorServer:
    """Makes sealed copies of what is asked for, and hands them out for tickets."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = socket_path(directory, name)
        self._copies: dict[tuple[Key, int], tuple[Payload, asyncio.Task[int]]] = {}
        self._tickets: dict[bytes, tuple[int, asyncio.Event]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

    def open(self) -> None:
        """Take the socket over from whoever had this name before."""
        self._path.unlink(missing_ok=True)
        with _short(self._path) as path:
            self._listener.bind(path)
        self._listener.listen(_MOST_CONNECTIONS)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        while self._copies:
            self._drop_oldest()

    async def copy(self, key: Key, payload: Payload) -> int:
        """A descriptor of a sealed copy, for a ticket at once; of the vector, if it is sealed.

        One per publication: what is published under a key stays, though its memory may serve
        another key later. The payload is kept too, so that no other gets its id.
        """
        own = memfd.descriptor_of(payload)
        if own is not None:
            return own
        which = key, id(payload)
        if which not in self._copies:
            while len(self._copies) >= KEPT:
                self._drop_oldest()
            self._copies[which] = payload, asyncio.ensure_future(memfd.sealed(payload))
        _, making = self._copies[which]
        try:
            return await asyncio.shield(making)
        except OSError:
            self._copies.pop(which, None)
            raise

    @contextmanager
    def ticket(self, descriptor: int) -> Iterator[tuple[bytes, asyncio.Event]]:
        """A ticket, valid inside, and the event that it was used."""
        ticket, used = secrets.token_bytes(wire.TICKET), asyncio.Event()
        own = os.dup(descriptor)  # the copy may be dropped meanwhile
        self._tickets[ticket] = own, used
        try:
            yield ticket, used
        finally:
            del self._tickets[ticket]
            os.close(own)

    def _drop_oldest(self) -> None:
        _, making = self._copies.pop(next(iter(self._copies)))
        if making.done():
            _close(making)
        else:
            making.add_done_callback(_close)

    # -- connections ----------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            if len(self._connections) >= _MOST_CONNECTIONS or _user(connection) != os.geteuid():
                connection.close()
                return
            task = asyncio.ensure_future(self._hand_out(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _hand_out(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection, suppress(OSError, asyncio.TimeoutError):
            ticket = await asyncio.wait_for(loop.sock_recv(connection, wire.TICKET), _PATIENCE_S)
            if ticket in self._tickets:
                descriptor, used = self._tickets[ticket]
                socket.send_fds(connection, [b"!"], [descriptor])
                used.set()


async def fetch(directory: Path, peer: str, ticket: bytes, request: wire.Request) -> Payload:
    """The vector behind a ticket, mapped.

    Raises WireError for one that must not be mapped, OSError if there is no way to get it.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        with _short(socket_path(directory, peer)) as path:
            await loop.sock_connect(connection, path)
        if _user(connection) != os.geteuid():
            raise ConnectionError("another user has taken the socket")
        await loop.sock_sendall(connection, ticket)
        await _readable(connection)
        _, descriptors, flags, _ = socket.recv_fds(connection, 1, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        if len(descriptors) != 1 or flags & socket.MSG_CTRUNC:
            raise ConnectionError("not exactly one descriptor came, or there was no room for it")
        return memfd.mapped(descriptors[0], request.length, request.key.dtype)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _user(sock: socket.socket) -> int:
    """Who is at the other end, as the system knows it."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return int(uid)


def _close(making: asyncio.Task[int]) -> None:
    if not making.cancelled() and making.exception() is None:
        os.close(making.result())
