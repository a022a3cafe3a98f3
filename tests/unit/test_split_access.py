"""Rights that travel in a header, addresses that may be spoken to, and settings."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.config import settings_of
from garfield.core.errors import AccessDenied, ConfigError, GarfieldError, StoreUnreachable
from garfield.split.stores import Access, StoreSettings, check_name, open_store
from garfield.split.stores.contract import REQUEST_S, TRAINING_S

SOUND = [
    Access("swift", token="AUTH_tk0", account="/v1/AUTH_alice"),
    Access("file", token="secret"),
    Access("s3", reads={"a": "https://s3/a?X-Amz-Signature=1"}, writes={"b": "https://s3/b"}),
]


@pytest.mark.parametrize("access", SOUND)
def test_rights_come_back_from_their_header(access: Access) -> None:
    header = access.as_header()
    assert header.isascii()
    assert header.isprintable()
    assert Access.from_header(header) == access


def test_an_account_with_escapes_in_its_storage_url_is_sent_without() -> None:
    access = Access.for_swift_token("t", "https://swift/v1/AUTH_us%3Aann/")
    assert access.account == "/v1/AUTH_us:ann"
    assert Access.from_header(access.as_header()) == access


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://s3/c/x?X-Amz-Signature=1&AWSAccessKeyId=me", "version 2"),
        ("https://s3/c\t/x?X-Amz-Signature=1", "no address"),  # urlsplit leaves the tab out
        ("https://s3/c/x\n?X-Amz-Signature=1", "no address"),
    ],
)
def test_a_presigned_address_that_the_store_could_read_otherwise_is_refused(
    url: str, says: str
) -> None:
    store = open_store(
        "s3://c", Access("s3", reads={"x": url}), StoreSettings(s3_endpoint="https://s3")
    )
    with pytest.raises(AccessDenied, match=says):
        store.get("x")


def test_nothing_secret_is_printed() -> None:
    for access in SOUND:
        for secret in ("AUTH_tk0", "secret", "Signature"):
            assert secret not in repr(access)
    shown = repr(StoreSettings(swift_key="K1", swift_token="K2", s3_secret_key="K3",
                               s3_session_token="K4", file_token="K5"))  # fmt: skip
    assert not any(f"K{i}" in shown for i in range(1, 6))


@pytest.mark.parametrize(
    "raw",
    [
        5, [], {}, {"kind": "root"}, {"kind": ["swift"]}, {"kind": "swift"},
        {"kind": "swift", "token": "t", "account": "/v1/.."},
        {"kind": "swift", "token": "t", "account": "/v1/a/b"},
        {"kind": "swift", "token": "t", "account": "/v2/a"},
        {"kind": "swift", "token": "t", "account": "//evil/v1/a"},
        {"kind": "swift", "token": "t", "account": "/v1/a?x"},
        # what Swift takes back is another way to write an account, or a container behind it
        {"kind": "swift", "token": "t", "account": "/v1/%41UTH_ann"},
        {"kind": "swift", "token": "t", "account": "/v1/AUTH_ann%2Fother"},
        {"kind": "swift", "token": "t", "account": "/v1/."},  # left out on the way there
        {"kind": "swift", "token": "t\r\nX-Other: 1", "account": "/v1/a"},
        {"kind": "swift", "token": 5, "account": "/v1/a"},
        {"kind": "swift", "token": "t", "account": "/v1/a", "reads": {"a": "b"}},
        {"kind": "s3", "token": "t"}, {"kind": "s3", "reads": ["a"]},
        {"kind": "s3", "reads": {"a": 1}},
        {"kind": "file"}, {"kind": "file", "token": ""}, {"kind": "file", "token": "t", "more": 1},
    ],
)  # fmt: skip
def test_rights_that_are_none_are_refused(raw: Any) -> None:
    header = base64.urlsafe_b64encode(json.dumps(raw).encode()).decode()
    with pytest.raises(AccessDenied) as refused:
        Access.from_header(header)
    assert refused.value.status == 401


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: base64.b64encode(b).decode()))
def test_any_header_is_refused_or_read(header: str) -> None:
    try:
        access = Access.from_header(header)
    except AccessDenied:
        return
    assert Access.from_header(access.as_header()) == access


def test_headers_are_bounded_both_ways() -> None:
    with pytest.raises(AccessDenied):
        Access.from_header("A" * 100_000)
    with pytest.raises(AccessDenied):
        Access.from_header(None)
    with pytest.raises(ConfigError, match="Name fewer"):
        Access("s3", reads={str(i): "https://" + "x" * 500 for i in range(100)}).as_header()


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "http://10.0.0.1:80", "http://127.0.0.1.example.org", "ftp://localhost",
     "http://user@localhost", "localhost:80", "", "http://"],
)  # fmt: skip
def test_secrets_go_to_https_or_this_machine_only(url: str) -> None:
    with pytest.raises(ConfigError):
        StoreSettings().check_private(url)


def test_addresses_of_this_machine_and_https_are_taken() -> None:
    for url in ("https://example.org", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost"):
        assert StoreSettings().check_private(url) == url
    assert StoreSettings(plain_http=True).check_private("http://10.0.0.1")


def test_a_plain_http_store_elsewhere_is_refused_before_anything_is_sent() -> None:
    for url, told in [
        ("swift://c", {"swift_auth_url": "http://10.0.0.1/auth/v1.0", "swift_user": "u",
                       "swift_key": "k"}),
        ("swift://c", {"swift_token": "t", "swift_storage_url": "http://10.0.0.1/v1/a"}),
        ("s3://bucket", {"s3_endpoint": "http://10.0.0.1", "s3_access_key": "a"}),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match="plain http"):
            open_store(url, settings=StoreSettings(**told))
    server = StoreSettings(swift_endpoint="http://10.0.0.1", s3_endpoint="http://10.0.0.1")
    for url, access in (("swift://c", SOUND[0]), ("s3://bucket", SOUND[2])):
        with pytest.raises(ConfigError, match="plain http"):
            open_store(url, access, server)


@pytest.mark.parametrize(
    "url",
    ["", "photos", "http://x", "s3://", "s3:///x", "s3://a@b/c", "s3://a:80/c", "s3://a/../b",
     "s3://a/b?x=1", "swift://a/b#c", "file://host/x", "file:x", "file:///x%00y", "swift://%2e%2e/x",
     "s3://a//b/%0a", "swift://photos%2Fann", "s3://photos%3A80/x"],
)  # fmt: skip
def test_addresses_that_are_no_stores_are_refused(url: str) -> None:
    with pytest.raises(GarfieldError):
        open_store(url)


def test_the_environment_fills_what_is_not_given() -> None:
    environment = {"ST_AUTH": "http://a", "ST_USER": "u", "ST_KEY": "k", "AWS_REGION": "eu",
                   "AWS_ACCESS_KEY_ID": "i", "AWS_ENDPOINT_URL": "e"}  # fmt: skip
    filled = StoreSettings(swift_user="mine").with_environment(environment)
    assert (filled.swift_auth_url, filled.swift_user, filled.swift_key) == ("http://a", "mine", "k")
    assert (filled.s3_region, filled.s3_access_key, filled.s3_endpoint) == ("eu", "i", "e")


def test_a_server_never_uses_keys_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_AUTH_TOKEN", "the operator's")
    monkeypatch.setenv("OS_STORAGE_URL", "http://127.0.0.1:1/v1/AUTH_operator")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(AccessDenied):
        open_store("swift://c", SOUND[0])
    with pytest.raises(AccessDenied):
        open_store("s3://bucket", SOUND[2])


def test_every_setting_is_documented() -> None:
    for setting in settings_of(StoreSettings):
        assert setting.about.endswith((".", ")")), setting.name


def test_names_are_checked() -> None:
    assert check_name("a/b c#d.tar") == "a/b c#d.tar"


# -- keystone, spoken to as it is documented ---------------------------------------------------


@contextmanager
def keystone(status: int, headers: dict[str, str], body: Any) -> Iterator[tuple[str, list[Any]]]:
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked.append((self.path, json.loads(self.rfile.read(length))))
            text = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v3", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


CATALOGUE = {"token": {"catalog": [
    {"type": "compute", "endpoints": []},
    {"type": "object-store", "endpoints": [
        {"interface": "internal", "url": "http://127.0.0.1:1/v1/AUTH_inside"},
        {"interface": "public", "url": "http://127.0.0.1:1/v1/AUTH_p"}]},
]}}  # fmt: skip


def test_a_token_of_keystone_reaches_the_account_in_its_catalogue() -> None:
    with keystone(201, {"X-Subject-Token": "gAAAA"}, CATALOGUE) as (url, asked):
        store = open_store(
            "swift://c",
            settings=StoreSettings(
                swift_auth_url=url, swift_user="u", swift_key="k", swift_project="p"
            ),
        )
        access = store.access([])
    assert access == Access("swift", token="gAAAA", account="/v1/AUTH_p")
    path, body = asked[0]
    assert path == "/v3/auth/tokens"
    assert body["auth"]["identity"]["password"]["user"] == {
        "name": "u", "password": "k", "domain": {"name": "Default"}
    }  # fmt: skip
    assert body["auth"]["scope"]["project"]["name"] == "p"


def test_a_token_for_a_whole_training_is_a_new_one() -> None:
    with keystone(201, {"X-Subject-Token": "gAAAA"}, CATALOGUE) as (url, asked):
        settings = StoreSettings(swift_auth_url=url, swift_user="u", swift_key="long")
        store = open_store("swift://c", settings=settings)
        for lasts_s, tokens in ((REQUEST_S, 1), (REQUEST_S, 1), (TRAINING_S, 2)):
            store.access([], lasts_s=lasts_s)
            assert len(asked) == tokens
    given = StoreSettings(swift_token="t", swift_storage_url="http://127.0.0.1:1/v1/AUTH_p")
    assert open_store("swift://c", settings=given).access([], lasts_s=TRAINING_S).token == "t"


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (401, {}, {}, AccessDenied),
        (500, {}, {}, StoreUnreachable),
        (201, {}, CATALOGUE, StoreUnreachable),
        (201, {"X-Subject-Token": "t"}, {"token": {}}, StoreUnreachable),
        (201, {"X-Subject-Token": "t"}, [], StoreUnreachable),
    ],
)
def test_what_keystone_may_answer_instead_is_told(
    status: int, headers: dict[str, str], body: Any, error: type[GarfieldError]
) -> None:
    with keystone(status, headers, body) as (url, _):
        settings = StoreSettings(swift_auth_url=url, swift_user="u", swift_key=str(status))
        with pytest.raises(error):
            open_store("swift://c", settings=settings).get("x")
