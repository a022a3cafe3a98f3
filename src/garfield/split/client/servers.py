"""The servers of a split training: they hold no state, so any of them answers any request.

A request goes to the servers in turn. One that cannot be reached, breaks off, or says that it
cannot now is passed over for a while, and the request goes to the next; when all have failed,
they are tried again after a pause, until `give_up_s` have passed (`rotation`). A refusal that no
other server would take back, such as a wrong token or a damaged object, is raised at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from garfield.core.bounds import Within
from garfield.core.errors import (
    ConfigError,
    MissingDependency,
    RequestRefused,
    SplitError,
)
from garfield.split import wire
from garfield.split.client.rotation import Rotation
from garfield.split.stores.settings import is_loopback

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_MOST_JSON = 8 << 20  # bytes of a status or a profile
_STATUS_S = 5.0  # that a server has to tell its load: to a plan, and before it is taken back


@dataclass(frozen=True)
class ServerSettings:
    """How servers are talked to."""

    connections: Annotated[int, Within(1, 256)] = 4
    """Requests under way at once."""
    answer_timeout_s: Annotated[float, Within(0, above=True)] = 300.0
    """How long a server may keep silent in the middle of an answer."""
    give_up_s: Annotated[float, Within(0)] = 60.0
    """How long a request is tried again, here and there, when no server answers it."""
    ca: str | None = None
    """A file of certificates to believe servers by, instead of the system's."""
    server_s3_endpoint: str | None = None
    """Where servers reach the S3 store, if that is not where we do: signatures hold for one
    address alone."""
    server_plain_http: bool = False
    """Speak http to servers that are not on this machine: data and tokens then travel in the
    clear. On a network that is yours alone."""


class Servers:
    """All of a training's servers. Used from several threads; closing it breaks off requests."""

    def __init__(
        self,
        urls: Sequence[str],
        settings: ServerSettings = ServerSettings(),  # noqa: B008 (frozen)
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not urls:
            raise ConfigError("No server is given: name one with --server, or use --baseline.")
        self.urls = tuple(_checked(url, settings.server_plain_http) for url in urls)
        self.connections = settings.connections
        self._settings, self._clock = settings, clock
        self._client = _client(settings)
        self._lock = threading.Lock()
        self._rotation = Rotation(
            self.urls, lambda url: self._status_at_once(url) is not None, clock
        )
        self._closed = threading.Event()
        self.retries = 0
        self.received_bytes = 0
        """Of all bodies, those of requests that failed included."""

    # -- what they are asked --------------------------------------------------------------

    def extract(
        self, request: wire.ExtractRequest, access: str, shape: tuple[int, ...], count: int
    ) -> wire.Features:
        """The features of some samples of one object; `shape` is that of one sample's."""
        body = wire.encode_request(request)
        return self._anywhere(
            f"features of {request.object_name}",
            lambda url: self._extract(url, body, access, shape, count),
        )

    def status(self, access: str = "") -> Mapping[str, Any]:
        """What the first server that answers tells of itself."""
        return self._anywhere(
            "the status", lambda url: self._json("GET", url, "/v1/status", access)
        )

    def statuses(self) -> list[Mapping[str, Any]]:
        """What all servers tell of themselves that answer soon: of one at least."""
        with ThreadPoolExecutor(min(len(self.urls), self.connections)) as threads:
            told = [each for each in threads.map(self._status_at_once, self.urls) if each]
        return told or [self.status()]

    def post(self, path: str, body: bytes, access: str) -> Mapping[str, Any]:
        """The JSON that a server answers to a request other than an extraction."""
        return self._anywhere(path, lambda url: self._json("POST", url, path, access, body))

    def lines(self, path: str, body: bytes, access: str) -> Iterator[bytes]:
        """The lines of a long answer, as they come; not tried again once a server has begun it."""
        import httpx

        headers = {wire.ACCESS_HEADER: access}
        with ExitStack() as stack:

            def begun(url: str) -> tuple[str, httpx.Response]:
                with ExitStack() as opened:
                    response = opened.enter_context(
                        self._client.stream("POST", url + path, content=body, headers=headers)
                    )
                    self._check(response)
                    stack.enter_context(opened.pop_all())
                    return url, response

            url, response = self._anywhere(f"an answer to {path}", begun)
            left = b""
            try:
                for piece in response.iter_raw():
                    self._count(len(piece))
                    *whole, left = (left + piece).split(b"\n")
                    if len(left) > _MOST_JSON:
                        raise SplitError(f"{url} answered {path} with a line without end.")
                    yield from whole
            except httpx.HTTPError as problem:
                raise SplitError(f"{url} broke off: {type(problem).__name__} {problem}") from None

    def probe(self, burst: int, count: int, access: str = "") -> float:
        """Seconds between the first `burst` bytes that a server sends, and `count` more."""

        def read(url: str) -> float:
            path = f"{url}/v1/bandwidth?bytes={burst + count}"
            headers = {wire.ACCESS_HEADER: access} if access else {}
            with self._client.stream("GET", path, headers=headers) as response:
                self._check(response)
                arrived, start = 0, self._clock()
                for piece in response.iter_raw():
                    self._count(len(piece))
                    if arrived < burst <= arrived + len(piece):
                        start = self._clock()
                    arrived += len(piece)
                return self._clock() - start

        return self._anywhere("a measurement of the link", read)

    def with_connections(self, connections: int) -> Servers:
        """The same servers, asked for so much at once; closed by whoever asked for them."""
        return Servers(self.urls, replace(self._settings, connections=connections), self._clock)

    def close(self) -> None:
        """Break off what is under way."""
        self._closed.set()
        self._client.close()

    # -- how ------------------------------------------------------------------------------

    def _extract(
        self, url: str, body: bytes, access: str, shape: tuple[int, ...], count: int
    ) -> wire.Features:
        headers = {wire.ACCESS_HEADER: access, "Content-Type": "application/json"}
        reader = wire.FeatureReader(count, shape)
        with self._client.stream(
            "POST", f"{url}/v1/extract", content=body, headers=headers
        ) as response:
            self._check(response)
            for piece in response.iter_raw():
                self._count(len(piece))
                reader.feed(piece)
        return reader.features()

    def _status_at_once(self, url: str) -> Mapping[str, Any] | None:
        """A server's status; None if it does not answer, or not soon."""
        import httpx

        try:
            return self._json("GET", url, "/v1/status", "", timeout_s=_STATUS_S)
        except (SplitError, httpx.HTTPError, httpx.StreamError, OSError, RuntimeError):
            return None

    def _json(
        self,
        method: str,
        url: str,
        path: str,
        access: str,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Any]:
        headers = {wire.ACCESS_HEADER: access} if access else {}
        timeout = self._client.timeout if timeout_s is None else timeout_s
        with self._client.stream(
            method, url + path, content=body, headers=headers, timeout=timeout
        ) as response:
            self._check(response)
            found = bytearray()
            for piece in response.iter_raw():
                self._count(len(piece))
                found += piece
                if len(found) > _MOST_JSON:
                    raise SplitError(f"{url} answered {path} with more than {_MOST_JSON} bytes.")
        try:
            told = json.loads(found)
        except (ValueError, RecursionError):
            raise SplitError(f"{url} answered {path} with what is no JSON.") from None
        if not isinstance(told, dict):
            raise SplitError(f"{url} answered {path} with what is no JSON object.")
        return told

    def _check(self, response: httpx.Response) -> None:
        if response.status_code >= 300:
            body = b""
            for piece in response.iter_raw():
                body += piece
                if len(body) > wire.MAX_FRAME:
                    break
            raise wire.from_body(body, response.status_code)

    def _anywhere(self, what: str, ask: Callable[[str], Answer]) -> Answer:
        """Ask one server after the other until one answers, or no more time is left."""
        import httpx

        deadline = self._clock() + self._settings.give_up_s
        problems: dict[str, str] = {}
        for attempt in range(1_000_000):
            url = self._rotation.next()
            try:
                answer = ask(url)
            except RequestRefused as refused:
                if not wire.Refusal.named(refused.refusal).passes:
                    raise
                problems[url] = str(refused)
            except (httpx.HTTPError, httpx.StreamError, OSError, RuntimeError) as problem:
                problems[url] = f"{type(problem).__name__} {problem}".strip()
            else:
                self._rotation.answered(url)
                return answer
            self._rotation.failed(url)
            if self._closed.is_set():
                raise SplitError(f"The servers were closed while {what} was asked for.")
            if self._clock() >= deadline and problems.keys() == {*self.urls}:
                break  # each was asked at least once
            with self._lock:
                self.retries += 1
            rounds, place = divmod(attempt + 1, len(self.urls))
            if place == 0:  # each has failed once more
                self._closed.wait(_PAUSES_S[min(rounds, len(_PAUSES_S)) - 1])
        told = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
        raise SplitError(
            f"No server gave {what} in {self._settings.give_up_s:g} s. {told}. "
            "Start one again and resume, or name others with --server."
        )

    def _count(self, received: int) -> None:
        with self._lock:
            self.received_bytes += received


def _client(settings: ServerSettings) -> httpx.Client:
    try:
        import httpx
    except ImportError:
        raise MissingDependency(
            "Split training talks to its servers with httpx, which is not installed. "
            "Install it with: pip install 'garfield-ml[split]'"
        ) from None
    import ssl

    verify: Any = ssl.create_default_context(cafile=settings.ca) if settings.ca else True
    return httpx.Client(
        timeout=httpx.Timeout(settings.answer_timeout_s, connect=10.0),
        limits=httpx.Limits(max_connections=settings.connections + 2),
        verify=verify,
        trust_env=False,  # a proxy of the environment would read the token
    )


def _checked(url: str, plain_http: bool) -> str:
    """The address of a server; https, except on this machine."""
    try:
        scheme, host, port = (parts := urlsplit(url)).scheme, parts.hostname, parts.port
    except ValueError:  # brackets that do not close, a port that is no number
        host = None
    if not host or scheme not in ("http", "https") or port == 0:
        raise ConfigError(f"A server is named as https://host:port, got {url!r}.")
    if scheme == "http" and not plain_http and not is_loopback(host):
        raise ConfigError(
            f"{url} would show the data and the token to whoever is on the way: use https://, "
            "or --server-plain-http on a network that is yours alone."
        )
    return url.rstrip("/")
