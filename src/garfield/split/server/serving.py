"""From settings to a server that listens, and to its end: the whole of `garfield split serve`."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from garfield.core.errors import ConfigError, MissingDependency, NodeFailed
from garfield.core.events import Sink
from garfield.runs.scratch import scratch_directory
from garfield.split.server.limited_memory import Source
from garfield.split.server.queue import RequestQueue
from garfield.split.server.service import SplitService
from garfield.split.server.settings import ServeSettings, amount
from garfield.split.server.spool import Spool
from garfield.split.server.weights import WeightsCache
from garfield.split.server.workers import WorkerPool

_SOURCES = {
    "auto": tuple(Source),
    "cgroup-v1": (Source.CGROUP_V1,),
    "cgroup-v2": (Source.CGROUP_V2,),
    "rlimit": (Source.RLIMIT,),
}

_NEEDED = {
    "swift": ("swift_endpoint", "where it sends tenants' tokens, as http://127.0.0.1:8080"),
    "s3": ("s3_endpoint", "where it sends tenants' requests, as https://s3.amazonaws.com"),
    "file": (
        "file_tokens",
        'a JSON file with {"SHA-256 of a token": ["folder below the root", ...]}, "." for all',
    ),
}
"""What a server needs to be told of its store: its environment is not asked."""


def serve(settings: ServeSettings, tell: Sink) -> None:
    """Serve until a signal ends it; tells where it listens once it does."""
    _require()

    async def until_signalled() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        async with _listening(settings) as listening:
            tell({"event": "listening", "url": listening.url, **_about(listening.service)})
            await ended.wait()
            tell({"event": "stopping"})

    asyncio.run(until_signalled())


@dataclass
class RunningServer:
    """A server that listens."""

    url: str
    service: SplitService
    loop: asyncio.AbstractEventLoop


@contextmanager
def running_server(settings: ServeSettings) -> Iterator[RunningServer]:
    """A server in a thread of this process, on a free port if none is given; its workers are
    processes as ever."""
    _require()
    started: list[RunningServer | BaseException] = []
    ready, stop = threading.Event(), None

    async def until_told() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with _listening(settings) as listening:
            started.append(listening)
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(until_told())
        except BaseException as problem:
            started.append(problem)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="garfield-split-server")
    thread.start()
    ready.wait()
    first = started[0]
    if not isinstance(first, RunningServer):
        thread.join()
        raise first
    try:
        yield first
    finally:
        with suppress(RuntimeError):  # it has ended already
            assert stop is not None
            first.loop.call_soon_threadsafe(stop.set)
        thread.join()
    if len(started) > 1 and isinstance(started[1], Exception):
        raise started[1]


@asynccontextmanager
async def running_service(settings: ServeSettings) -> AsyncIterator[SplitService]:
    """Workers, queue and service, without HTTP."""
    _check_store(settings)
    settings = _with_root(settings)
    pool = WorkerPool(
        settings.budgets,
        settings.workers,
        settings.recycle_after,
        settings.threads,
        _SOURCES[settings.limit_by],
    )
    with scratch_directory() as scratch:
        weights = WeightsCache(
            scratch,
            amount(settings.weights_kept, "weights_kept"),
            amount(settings.most_weights, "most_weights"),
        )
        async with pool:
            _check_room(pool)
            queue = RequestQueue(pool, settings.batching, most_waiting=settings.most_waiting)
            most_weights = amount(settings.most_weights, "most_weights")  # of the next tenant
            spool = Spool(scratch, amount(settings.spool, "spool"), left_free=most_weights)
            service = SplitService(settings, pool, queue, weights, spool)
            try:
                yield service
            finally:
                service.close()


@asynccontextmanager
async def _listening(settings: ServeSettings) -> AsyncIterator[RunningServer]:
    from garfield.split.server.app import app_over
    from garfield.split.server.http import http_server

    _check_certificate(settings)
    listener = _bound(settings)
    scheme = "https" if settings.certificate else "http"
    host, port = listener.getsockname()[:2]
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    with listener:
        async with running_service(settings) as service, app_over(service) as app:
            server = http_server(app, settings)
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            try:
                while not server.started and not serving.done():
                    await asyncio.sleep(0.01)
                if serving.done():
                    serving.result()
                    raise NodeFailed(f"The server at {url} did not start.")
                yield RunningServer(url, service, asyncio.get_running_loop())
            finally:
                server.should_exit = True
                await asyncio.gather(serving, return_exceptions=True)


def _bound(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host.strip("[]"), settings.port))
    except OSError as problem:
        listener.close()
        raise ConfigError(
            f"Cannot listen at {settings.host}:{settings.port}: {problem.strerror}. Choose "
            "another port, or 0 for a free one."
        ) from None
    return listener


def _check_store(settings: ServeSettings) -> None:
    """Refuse to serve a store that no tenant could read: it would look like their mistake."""
    scheme = settings.store.partition("://")[0]
    name, what = _NEEDED[scheme]
    if getattr(settings.connection, name) is None:
        flag = "--" + name.replace("_", "-")
        raise ConfigError(f"A server of {settings.store} wants {flag}: {what}.")


def _check_certificate(settings: ServeSettings) -> None:
    if settings.certificate is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.certificate, settings.certificate_key)
        except OSError as problem:  # of which an SSLError is one
            raise ConfigError(
                f"{settings.certificate} and {settings.certificate_key} are no certificate and its "
                f"key: {problem.strerror or problem}."
            ) from None


def _check_room(pool: WorkerPool) -> None:
    for device, budget in pool.budgets.items():
        idle = pool.idle_bytes(device)
        if idle * 4 > budget * 3:
            raise ConfigError(
                f"{pool.workers} idle workers take {idle >> 20} MiB of {device}'s budget of "
                f"{budget >> 20} MiB. Give a larger budget, or fewer workers."
            )


def _with_root(settings: ServeSettings) -> ServeSettings:
    """A server of files holds its tenants to the folder that it serves."""
    if not settings.store.startswith("file://") or settings.connection.file_root:
        return settings
    root = unquote(urlsplit(settings.store).path)
    return replace(settings, connection=replace(settings.connection, file_root=root))


def _about(service: SplitService) -> dict[str, Any]:
    pool = service.pool
    return {
        "budgets": dict(pool.budgets),
        "workers": len(pool.all),
        "idle_bytes": {device: pool.idle_bytes(device) for device in pool.budgets},
        "limited_by": next(iter(pool.devices.values())).source.value,
    }


def _require() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "A split server needs packages that are not installed. "
            "Install them with: pip install 'garfield-ml[split]'"
        ) from None
