"""A stranger at a node's door: connections that say nonsense, half of something, or nothing."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

CONNECTIONS = 48
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_WORDS = (
    b"",  # says nothing, and stays
    _HTTP2,  # and no more
    _HTTP2 + _SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",  # a frame too large to come
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # half a TLS greeting
)


class Stranger:
    """Opens connections and holds them until it is told to go."""

    def __init__(self, address: str | int) -> None:
        """`address` is a port of this machine, or the path of a unix socket."""
        self._address = address
        self._held: list[socket.socket] = []

    def come(self) -> None:
        for number in range(CONNECTIONS):
            with suppress(OSError):  # turned away: that is the node's good right
                self._held.append(self._connected())
                words = _WORDS[number % len(_WORDS)] if number % 6 else os.urandom(256)
                self._held[-1].send(words)

    def go(self) -> None:
        for each in self._held:
            each.close()
        self._held.clear()

    def _connected(self) -> socket.socket:
        if isinstance(self._address, int):
            return socket.create_connection(("127.0.0.1", self._address), timeout=2.0)
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(2.0)
        made.connect(self._address)
        return made
