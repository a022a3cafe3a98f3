"""Stores that answer with errors, half of an object, or the way to somewhere else.

The store is a stand-in that misbehaves by plan; tests/contracts has the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from garfield.core.errors import AccessDenied, ObjectMissing, StoreUnreachable
from garfield.split.stores import Access, Store, StoreSettings, open_store

WHOLE = b"0123456789" * 100
Plan = Callable[[int], tuple[int, dict[str, str], bytes]]
"""Status, headers and body for the n-th request."""


@contextmanager
def store_that(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, headers, body = plan(len(asked) - 1)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def opened(kind: str, endpoint: str) -> Store:
    """A store at that address, as its owner or as a server opens it."""
    settings = StoreSettings(
        swift_endpoint=endpoint, s3_endpoint=endpoint, swift_token="t",
        swift_storage_url=f"{endpoint}/v1/AUTH_a", s3_access_key="k", s3_secret_key="s",
        store_timeout_s=10.0,
    )  # fmt: skip
    access = {
        "server swift": Access("swift", token="t", account="/v1/AUTH_a"),
        "server s3": Access("s3", reads={"x": f"{endpoint}/bucket/x?X-Amz-Signature=1"}),
    }.get(kind)
    return open_store(f"{kind.split()[-1]}://bucket", access, settings)


every_kind = pytest.mark.parametrize("kind", ["swift", "s3", "server swift", "server s3"])


@every_kind
def test_an_error_that_passes_is_not_noticed(kind: str) -> None:
    def plan(n: int) -> tuple[int, dict[str, str], bytes]:
        return (
            (503, {}, b"busy") if n == 0 else (200, {"ETag": '"1"', "Last-Modified": DATE}, WHOLE)
        )

    with store_that(plan) as (endpoint, asked):
        assert opened(kind, endpoint).get("x") == WHOLE
    assert len(asked) == 2


DATE = "Tue, 17 Nov 2026 07:00:00 GMT"


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize(
    ("status", "error"),
    [(500, StoreUnreachable), (503, StoreUnreachable), (404, ObjectMissing), (403, AccessDenied),
     (401, AccessDenied)],
)  # fmt: skip
def test_an_error_that_stays_is_told_by_its_kind(
    kind: str, status: int, error: type[Exception]
) -> None:
    with store_that(lambda n: (status, {}, b"no")) as (endpoint, asked):
        with pytest.raises(error):
            opened(kind, endpoint).get("x")
        assert 1 <= len(asked) <= 4


@every_kind
def test_half_of_an_object_is_never_taken_for_the_whole(kind: str) -> None:
    headers = {"Content-Length": str(len(WHOLE)), "ETag": '"1"', "Last-Modified": DATE}
    with (
        store_that(lambda n: (200, headers, WHOLE[:400])) as (endpoint, _),
        pytest.raises(StoreUnreachable),
    ):
        opened(kind, endpoint).get("x")


@pytest.mark.parametrize("kind", ["server swift", "server s3"])
def test_a_server_sends_no_token_where_a_store_points_it(kind: str) -> None:
    with (
        store_that(lambda n: (200, {}, b"taken")) as (elsewhere, taken),
        store_that(lambda n: (302, {"Location": f"{elsewhere}/bucket/x"}, b"")) as (endpoint, _),
    ):
        with pytest.raises(StoreUnreachable):
            opened(kind, endpoint).get("x")
        assert taken == []
