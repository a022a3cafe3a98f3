"""HTTP in front of the service: a few routes, hostile clients, slow ones.

    POST /v1/extract            features of an object's samples, as a stream
    POST /v1/materialise        the same of a whole object, stored beside it instead of sent
    POST /v1/profile            memory and time of a model's first layers here
    POST /v1/train              a whole fine-tuning beside the store (ALL_IN_COS)
    GET  /v1/status             load, budgets, versions
    GET  /v1/bandwidth?bytes=N  N bytes, for a client to time

Rights come in the header `X-Garfield-Access`, and are the tenant's own. A refusal is a status
and a JSON object with its kind and a sentence. What a client can make the server hold is
bounded: a request's bytes and the time it takes to arrive, what waits to be sent, and how long
it may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from garfield.core.errors import GarfieldError, RequestRefused
from garfield.core.files import as_json
from garfield.split.server.http import cut_off
from garfield.split.server.outlet import PIECE, Outlet
from garfield.split.server.profiling import tell_profile
from garfield.split.server.room import Room
from garfield.split.server.seats import Seat, Seats
from garfield.split.server.service import SplitService
from garfield.split.server.settings import amount
from garfield.split.server.status import status_of
from garfield.split.server.whole_training import failed_line, train_whole
from garfield.split.wire import (
    ACCESS_HEADER,
    MAX_REQUEST,
    ExtractRequest,
    ProfileRequest,
    Refusal,
    TrainRequest,
    as_body,
    as_refusal,
    decode_request,
    error_frame,
)

MAX_MEASURED = 256 << 20  # bytes that a measurement of bandwidth may ask for
_ZEROS = bytes(PIECE)

Produce = Callable[[Outlet, Seat], Awaitable[None]]
ToldLast = Callable[[RequestRefused], bytes]
"""How an answer that breaks off ends, in its own kind of bytes."""


class SplitApp:
    """The routes, over one service."""

    def __init__(self, service: SplitService) -> None:
        self.service, self.settings = service, service.settings
        self._buffer = amount(self.settings.buffer, "buffer")
        self.memory = Room(amount(self.settings.buffers, "buffers"))
        """Of all answers that wait to be taken."""
        self._seats = Seats(self.settings.most_per_client)
        self._measuring = Seats(self.settings.most_per_client)
        """Measurements of the link, which need no rights: they take no seat from whoever works."""
        self._producing: set[asyncio.Task[None]] = set()

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/extract", self._answered(self.extract), methods=["POST"]),
            Route("/v1/materialise", self._answered(self.materialise), methods=["POST"]),
            Route("/v1/profile", self._answered(self.profile), methods=["POST"]),
            Route("/v1/train", self._answered(self.train), methods=["POST"]),
            Route("/v1/status", self._answered(self.status), methods=["GET"]),
            Route("/v1/bandwidth", self._answered(self.bandwidth), methods=["GET"]),
        ]

    async def extract(self, http: Request) -> Response:
        access = _access(http)
        request = decode_request(await self._body(http), ExtractRequest)
        return self._stream(
            http, lambda out, seat: self.service.extract(request, access, out, seat)
        )

    async def materialise(self, http: Request) -> Response:
        access = _access(http)
        request = decode_request(await self._body(http), ExtractRequest)
        return self._stream(
            http, lambda out, seat: self.service.materialise(request, access, out, seat)
        )

    async def train(self, http: Request) -> Response:
        if not self.settings.all_in_store:
            raise Refusal.FORBIDDEN.error("This server does not run whole trainings.")
        access = _access(http)
        request = decode_request(await self._body(http), TrainRequest)
        return self._stream(
            http,
            lambda out, seat: train_whole(self.service, request, access, out, seat),
            failed_line,
        )

    async def profile(self, http: Request) -> Response:
        access = _access(http)
        request = decode_request(await self._body(http), ProfileRequest)
        return self._stream(
            http, lambda out, seat: tell_profile(self.service, request, access, out, seat)
        )

    async def status(self, http: Request) -> Response:
        return _json(status_of(self.service))

    async def bandwidth(self, http: Request) -> Response:
        text = http.query_params.get("bytes", "1000000")
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise Refusal.MALFORMED.error(f"bytes must be a whole number, got {text[:40]!r}.")
        if (count := int(text)) > MAX_MEASURED:
            raise Refusal.TOO_LARGE.error(f"bytes may be {MAX_MEASURED} at most, got {count}.")

        async def zeros(out: Outlet, seat: Seat) -> None:
            for lo in range(0, count, PIECE):
                await out.put(_ZEROS[: count - lo])
            out.end()

        seat = self._measuring.taken(_address(http))
        # apart from the memory that answers share: all of its pieces are the same bytes
        return self._streamed(Outlet(self._buffer), zeros, seat)

    async def stop(self) -> None:
        """Call off what is being computed."""
        for task in self._producing:
            task.cancel()
        await asyncio.gather(*self._producing, return_exceptions=True)

    def _stream(
        self, http: Request, produce: Produce, told_last: ToldLast = error_frame
    ) -> Response:
        """An answer that is computed while it is sent, one of a bounded number per client."""
        seat = self._seats.taken(_address(http))
        out = Outlet(self._buffer, self.service.spool.answer(seat), self.memory)
        return self._streamed(out, produce, seat, told_last)

    def _streamed(
        self, out: Outlet, produce: Produce, seat: Seat, told_last: ToldLast = error_frame
    ) -> Response:
        task = asyncio.get_running_loop().create_task(_awaited(produce(out, seat)))
        self._producing.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._producing.discard(task)
            if not task.cancelled():
                task.exception()  # told to the client already
            out.end(Refusal.FAILED.error("The server could not go on."))

        task.add_done_callback(ended)
        return Streamed(out, task, seat, self.settings.stall_s, told_last)

    async def _body(self, http: Request) -> bytes:
        """The body of a request, if it is small enough and comes in time."""
        told = http.headers.get("content-length", "0")
        if told.isdigit() and int(told) > MAX_REQUEST:
            raise Refusal.TOO_LARGE.error(f"A request of {told} bytes; at most {MAX_REQUEST}.")
        try:
            with anyio.fail_after(self.settings.receive_s):
                return await _read(http)
        except TimeoutError:
            raise Refusal.SLOW.error(
                f"The request did not arrive in {self.settings.receive_s:g} s."
            ) from None

    def _answered(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Errors of ours become refusals."""

        async def answered(http: Request) -> Response:
            try:
                return await endpoint(http)
            except GarfieldError as error:
                return _refused(as_refusal(error))
            except ClientDisconnect:
                return Response(status_code=Refusal.SLOW.status)

        return answered


class Streamed(Response):
    """Sends what an outlet gives; calls its producer off when the client goes, or stalls.

    Its client has a seat until all is computed and taken, so nobody collects answers on disk.
    """

    def __init__(
        self,
        out: Outlet,
        producer: asyncio.Task[None],
        seat: Seat,
        stall_s: float,
        told_last: ToldLast,
    ) -> None:
        super().__init__()
        self._out, self._producer, self._seat, self._stall_s = out, producer, seat, stall_s
        self._told_last = told_last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(scope, receive, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except TimeoutError:
            cut_off(scope.get("client"))  # it takes nothing
        finally:
            self._out.abandon()
            self._producer.cancel()  # nothing happens if it is done
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            self._producer.add_done_callback(lambda _: self._seat.leave())

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._out.started()
        except RequestRefused as refused:
            await self._leave_seat()
            await _refused(refused)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
        await self._timed(send, {"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in self._out.pieces():
                await self._body(send, bytes(piece))
        except RequestRefused as refused:
            await self._body(send, self._told_last(refused))
        await self._leave_seat()
        await self._body(send, b"", more=False)

    async def _leave_seat(self) -> None:
        """Before the client hears the end: the request that it sends next finds its seat free."""
        await asyncio.wait({self._producer})
        self._seat.leave()

    async def _body(self, send: Send, content: bytes, more: bool = True) -> None:
        message = {"type": "http.response.body", "body": content, "more_body": more}
        await self._timed(send, message)

    async def _timed(self, send: Send, message: dict[str, Any]) -> None:
        with anyio.fail_after(self._stall_s):
            await send(message)


@asynccontextmanager
async def app_over(service: SplitService) -> AsyncIterator[Starlette]:
    """An ASGI application over a running service."""
    routes = SplitApp(service)
    try:
        yield Starlette(routes=routes.routes)
    finally:
        await routes.stop()


async def _read(http: Request) -> bytes:
    body = bytearray()
    async for piece in http.stream():
        body += piece
        if len(body) > MAX_REQUEST:
            raise Refusal.TOO_LARGE.error(f"A request of {len(body)} bytes; at most {MAX_REQUEST}.")
    return bytes(body)


async def _disconnected(receive: Receive) -> None:
    with suppress(Exception):
        while (await receive())["type"] != "http.disconnect":
            pass


async def _awaited(answer: Awaitable[None]) -> None:
    await answer


def _address(http: Request) -> str:
    return http.client.host if http.client else ""


def _access(http: Request) -> str:
    access = http.headers.get(ACCESS_HEADER)
    if not access:
        raise Refusal.UNAUTHORISED.error(
            f"The header {ACCESS_HEADER} is missing: it says with whose rights to read."
        )
    return access


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")


def _refused(refused: RequestRefused) -> Response:
    headers = {"retry-after": "1"} if refused.status == Refusal.BUSY.status else None
    return Response(as_body(refused), refused.status, headers, "application/json")
