"""The HTTP server itself: uvicorn, with a time for headers to arrive and no signals of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from garfield.split.server.settings import ServeSettings

MAX_HEADERS = 64 << 10  # bytes; presigned addresses are long
KEEP_ALIVE_S = 60.0  # between two requests of a connection
_STOP_S = 5


def http_server(app: Starlette, settings: ServeSettings) -> uvicorn.Server:
    """A server that will serve an application as the settings say."""
    config = uvicorn.Config(
        app,
        http=_timed(settings.receive_s),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # X-Forwarded-For may be of a client's own invention, and `cut_off` looks for real addresses
        proxy_headers=False,
        date_header=False,
        h11_max_incomplete_event_size=MAX_HEADERS,
        limit_concurrency=settings.most_waiting + 100,
        timeout_keep_alive=int(KEEP_ALIVE_S),
        timeout_graceful_shutdown=_STOP_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.certificate_key,
    )
    return Server(config)


class Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def cut_off(client: tuple[str, int] | None) -> None:
    """End a client's connection at once, with what it has not taken."""
    if client is not None and (connection := _CONNECTIONS.get((client[0], client[1]))) is not None:
        connection.transport.abort()


class TimedHeads(H11Protocol):
    """A connection that must bring the head of each request in time: who does not is cut off, with
    what it has not taken of the last answer."""

    receive_s = 15.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.client is not None:
            _CONNECTIONS[self.client] = self
        self._wait_for_head(self.receive_s)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waits():
            return
        self._forget()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waits():  # also if it is closing, which it does for as long as bytes are left
            self._wait_for_head(KEEP_ALIVE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self.client is not None and _CONNECTIONS.get(self.client) is self:
            del _CONNECTIONS[self.client]
        super().connection_lost(exc)

    def _waits(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self, seconds: float) -> None:
        self._forget()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self._waits():
            self.transport.abort()


def _timed(receive_s: float) -> type[TimedHeads]:
    return type("TimedHeads", (TimedHeads,), {"receive_s": receive_s})


_CONNECTIONS: dict[tuple[str, int], TimedHeads] = {}
"""Those that are open, by the client's address and port."""
