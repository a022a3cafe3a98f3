"""OpenStack Swift through python-swiftclient, by password (tempauth, keystone) or by token.

Of the clients measured (benchmarks/split_stores.py) swiftclient is the fastest of Swift's own
API together with urllib3, on half of httpx's processor time or less. One of its connections
serves one thread at a time, so connections are lent from a pool that all stores of one account
share: opening a store for each request costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from garfield.core.errors import (
    AccessDenied,
    ConfigError,
    MissingDependency,
    ObjectMissing,
    StoreUnreachable,
)
from garfield.split.stores.access import Access
from garfield.split.stores.contract import REQUEST_S, check_name, check_range
from garfield.split.stores.keystone import keystone_token
from garfield.split.stores.settings import StoreSettings

RETRIES = 2
KEPT = 16  # connections of one account, while nobody uses them
ACCOUNTS = 64  # of which connections are kept
Result = TypeVar("Result")


class SwiftAccount:
    """Where an account is, and the token for it; got anew when it has expired."""

    def __init__(self, authenticate: Callable[[], tuple[str, str]], renewable: bool) -> None:
        self._authenticate = authenticate
        self._renewable = renewable
        self._lock = threading.Lock()
        self._held: tuple[str, str] | None = None

    def get(self) -> tuple[str, str]:
        """Storage URL and token."""
        with self._lock:
            if self._held is None:
                self._held = self._authenticate()
            return self._held

    def renew(self, refused: tuple[str, str]) -> bool:
        """Forget a pair that was refused; False if there is no way to another."""
        with self._lock:
            if self._renewable and self._held == refused:
                self._held = None
            return self._renewable


class SwiftStore:
    """Objects of one container, under one prefix."""

    def __init__(
        self, url: str, container: str, prefix: str, account: SwiftAccount, timeout_s: float
    ) -> None:
        self.url = url
        self._container, self._prefix = container, prefix
        self._account = account
        self._timeout_s = timeout_s

    def get(self, name: str) -> bytes:
        _, data = self._do(name, "get_object")
        return bytes(data)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        headers = {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            _, data = self._do(name, "get_object", headers=headers)
        except _Unsatisfiable:
            return b""
        return bytes(data)[:length]

    def put(self, name: str, data: bytes) -> None:
        try:
            self._do(name, "put_object", data)
        except ObjectMissing:  # the container, that is
            self._call(name, "put_container", self._container)
            self._do(name, "put_object", data)

    def size(self, name: str) -> int:
        return int(self._do(name, "head_object")["content-length"])

    def names(self, prefix: str = "") -> list[str]:
        begin = self._prefix + prefix
        try:
            _, found = self._call(
                prefix, "get_container", self._container, prefix=begin, full_listing=True
            )
        except ObjectMissing:
            return []
        return sorted(entry["name"][len(self._prefix) :] for entry in found)

    def delete(self, name: str) -> None:
        self._do(name, "delete_object")

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        if lasts_s > REQUEST_S:  # ours may be as good as over
            self._account.renew(self._account.get())
        storage_url, token = self._account.get()
        return Access.for_swift_token(token, storage_url)

    def close(self) -> None:
        """Connections stay with the pool."""

    def _do(self, name: str, method: str, *arguments: Any, **named: Any) -> Any:
        key = self._prefix + check_name(name)
        return self._call(name, method, self._container, key, *arguments, **named)

    def _call(self, name: str, method: str, *arguments: Any, **named: Any) -> Any:
        """Call swiftclient; once more with a new token if the old one has expired."""
        pair = self._account.get()
        try:
            return self._once(name, pair, method, *arguments, **named)
        except AccessDenied as denied:
            if denied.status != 401 or not self._account.renew(pair):
                raise
        return self._once(name, self._account.get(), method, *arguments, **named)

    def _once(
        self, name: str, pair: tuple[str, str], method: str, *arguments: Any, **named: Any
    ) -> Any:
        storage_url, token = pair
        with _errors(name, self.url), _POOL.lent(storage_url, self._timeout_s) as connection:
            connection.url, connection.token = storage_url, token
            return getattr(connection, method)(*arguments, **named)


class _Unsatisfiable(Exception):  # noqa: N818 (a signal between two functions)
    """The object ends before the range begins (416)."""


class _Pool:
    """Connections by account, each lent to one thread at a time.

    Not by address: a connection of swiftclient keeps the path of the account it was made for,
    whatever URL it is told later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, float], list[Any]] = {}

    @contextmanager
    def lent(self, storage_url: str, timeout_s: float) -> Iterator[Any]:
        account = (storage_url, timeout_s)
        with self._lock:
            idle = self._idle.pop(account, [])
            self._idle[account] = idle  # now the last to be forgotten
            connection = idle.pop() if idle else None
            eldest = next(iter(self._idle))
            forgotten = self._idle.pop(eldest) if len(self._idle) > ACCOUNTS else []
        for each in forgotten:
            each.close()
        if connection is None:
            connection = _connection_class()(
                preauthurl=storage_url,
                preauthtoken="replaced before use",
                retries=RETRIES,
                starting_backoff=0.1,
                max_backoff=1,
                timeout=timeout_s,
            )
        try:
            yield connection
        finally:
            with self._lock:
                keep = len(idle) < KEPT and self._idle.get(account) is idle
                if keep:
                    idle.append(connection)
            if not keep:
                connection.close()


_POOL = _Pool()


def open_swift(
    url: str, container: str, prefix: str, access: Access | None, settings: StoreSettings
) -> SwiftStore:
    """A container, with our own rights or with a client's token."""
    account = _own_account(settings) if access is None else _tenants_account(access, settings)
    return SwiftStore(url, container, prefix, account, settings.store_timeout_s)


def _tenants_account(access: Access, settings: StoreSettings) -> SwiftAccount:
    """A client's account at the server's own Swift, whatever address the client may mean."""
    if not settings.swift_endpoint:
        raise AccessDenied("This server has no Swift to send a token to.", status=401)
    storage_url = settings.check_private(settings.swift_endpoint).rstrip("/") + access.account
    return SwiftAccount(lambda: (storage_url, access.token), renewable=False)


def _own_account(settings: StoreSettings) -> SwiftAccount:
    if settings.swift_token and settings.swift_storage_url:
        pair = (settings.check_private(settings.swift_storage_url), settings.swift_token)
        return SwiftAccount(lambda: pair, renewable=False)
    if not (settings.swift_auth_url and settings.swift_user and settings.swift_key):
        raise ConfigError(
            "Swift needs swift_auth_url, swift_user and swift_key (ST_AUTH, ST_USER, ST_KEY; or "
            "OS_AUTH_URL, OS_USERNAME, OS_PASSWORD), or swift_token and swift_storage_url "
            "(OS_AUTH_TOKEN, OS_STORAGE_URL)."
        )
    settings.check_private(settings.swift_auth_url)
    with _ACCOUNTS_LOCK:  # one log-in for all stores that are opened with the same settings
        if settings not in _ACCOUNTS:
            _ACCOUNTS[settings] = SwiftAccount(lambda: _logged_in(settings), renewable=True)
        return _ACCOUNTS[settings]


_ACCOUNTS: dict[StoreSettings, SwiftAccount] = {}
_ACCOUNTS_LOCK = threading.Lock()


def _logged_in(settings: StoreSettings) -> tuple[str, str]:
    """Storage URL and token, from keystone or tempauth."""
    auth_url = str(settings.swift_auth_url)
    with _errors("log-in", auth_url):
        if urlsplit(auth_url).path.rstrip("/").endswith("/v3"):
            storage_url, token = keystone_token(settings)
        else:
            storage_url, token = _client().get_auth(
                auth_url,
                settings.swift_user,
                settings.swift_key,
                auth_version="1",
                timeout=settings.store_timeout_s,
            )
    if settings.swift_storage_url:
        storage_url = settings.swift_storage_url
    elif urlsplit(storage_url).netloc != urlsplit(auth_url).netloc and _is_v1(auth_url):
        # tempauth tells its own address; where it is reached by another, so is the account
        reached = urlsplit(auth_url)
        parts = urlsplit(storage_url)
        storage_url = urlunsplit((reached.scheme, reached.netloc, parts.path, "", ""))
    return settings.check_private(storage_url), token


def _is_v1(auth_url: str) -> bool:
    return urlsplit(auth_url).path.startswith("/auth/")


@cache
def _connection_class() -> Any:
    """swiftclient's connection, save that it goes nowhere else with a token when told to."""

    class Connection(_client().Connection):  # type: ignore[misc]
        def http_connection(self) -> Any:
            parsed, connection = super().http_connection()
            connection.request_session.max_redirects = 0
            return parsed, connection

    return Connection


def _client() -> Any:
    try:
        import swiftclient
    except ImportError:
        raise MissingDependency(
            "python-swiftclient is not installed. Install it with: pip install 'garfield-ml[split]'"
        ) from None
    import logging

    logging.getLogger("swiftclient").setLevel(logging.CRITICAL)  # errors are raised, and told
    return swiftclient


@contextmanager
def _errors(name: str, url: str) -> Iterator[None]:
    """swiftclient's errors as ours."""
    _client()  # or MissingDependency
    import requests
    from swiftclient.exceptions import ClientException
    from urllib3.exceptions import HTTPError  # swiftclient lets it through if a body is cut short

    try:
        yield
    except ClientException as problem:
        status = problem.http_status
        if status == 404:
            raise ObjectMissing(f"{url} has no object {name}.") from None
        if status in (401, 403):
            raise AccessDenied(f"{url} refuses {name} ({status}).", status=status) from None
        if status == 416:
            raise _Unsatisfiable(f"{name} in {url} ends before the range.") from None
        raise StoreUnreachable(f"{name} in {url}: {problem}") from None
    except (requests.RequestException, HTTPError, OSError, ValueError) as problem:
        raise StoreUnreachable(f"{name} in {url}: {type(problem).__name__}: {problem}") from None
