"""Messages on their way to a process that may not be reading: whoever sends never waits.

What the connection has no room for is kept, in order, and sent on when there is: a frozen
process gets all of it once it is thawed.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

_LENGTH = struct.Struct("!i")  # in front of every message, as Connection.recv_bytes expects


@dataclass
class Outgoing:
    """One process's messages that have not left."""

    connection: Connection
    """A stream socket, as both `Pipe()` and a unix listener make them."""
    _left: bytearray = field(default_factory=bytearray)

    @property
    def waiting(self) -> bool:
        """Whether anything has not left."""
        return bool(self._left)

    def send(self, message: bytes) -> None:
        """Send as much as there is room for, and keep the rest; OSError if nobody is there."""
        self._left += _LENGTH.pack(len(message)) + message
        self.flush()

    def flush(self) -> None:
        """Send what was kept, as far as there is room now."""
        if not self._left:
            return
        with socket.socket(fileno=self.connection.fileno()) as stream:
            try:
                while self._left:
                    del self._left[: stream.send(self._left, socket.MSG_DONTWAIT)]
            except BlockingIOError:
                pass
            finally:
                stream.detach()  # it is the connection's
