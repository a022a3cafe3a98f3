"""A server's view of S3: only what a client has signed, and only at the server's own endpoint.

The server has no keys. A presigned GET names one object of one endpoint; one for another
host, bucket or object, or without a signature, is refused before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from garfield.core.errors import (
    AccessDenied,
    ConfigError,
    MissingDependency,
    ObjectMissing,
    StoreUnreachable,
)
from garfield.split.stores.access import Access
from garfield.split.stores.contract import REQUEST_S, check_name, check_range
from garfield.split.stores.settings import StoreSettings, origin

KEPT = 16  # connections, while nobody uses them
_AS_SIGNED = re.compile(r"[\x21-\x7e]+")


class PresignedStore:
    """The objects for which a client sent presigned requests."""

    def __init__(
        self, url: str, path: str, access: Access, endpoint: str, timeout_s: float
    ) -> None:
        """`path` is that of the data set at the endpoint: /bucket/prefix/."""
        self.url = url
        self._path = path
        self._access = access
        self._endpoint = endpoint
        self._pool = _pool(timeout_s)

    def get(self, name: str) -> bytes:
        return bytes(self._asked("GET", name, {}).data)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        reply = self._asked("GET", name, {"Range": f"bytes={start}-{start + length - 1}"})
        if reply.status == 416:
            return b""
        data = bytes(reply.data)
        return data[:length] if reply.status == 206 else data[start : start + length]

    def put(self, name: str, data: bytes) -> None:
        self._asked("PUT", name, {}, data)

    def size(self, name: str) -> int:
        """Of the object; asked by a GET of its first byte, as a HEAD was not signed."""
        reply = self._asked("GET", name, {"Range": "bytes=0-0"})
        told = reply.headers.get("Content-Range", "").rpartition("/")[2]
        if reply.status == 416 and not told.isdigit():
            return 0
        return int(told) if told.isdigit() else len(reply.data)

    def names(self, prefix: str = "") -> list[str]:
        raise AccessDenied(f"Presigned GETs do not list {self.url}.")

    def delete(self, name: str) -> None:
        raise AccessDenied(f"Presigned GETs do not delete {name} in {self.url}.")

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        return self._access

    def close(self) -> None:
        """Connections stay with the pool."""

    def _asked(
        self, method: str, name: str, headers: Mapping[str, str], data: bytes | None = None
    ) -> Any:
        import urllib3

        url = self._signed(method, name)
        try:
            reply = self._pool.request(
                method, url, headers=dict(headers), body=data, redirect=False
            )
        except urllib3.exceptions.HTTPError as problem:
            kind = type(problem).__name__
            raise StoreUnreachable(f"{name} in {self.url}: {kind}.") from None
        if reply.status not in (200, 201, 206, 416):
            self._refuse(name, reply.status)
        return reply

    def _refuse(self, name: str, status: int) -> NoReturn:
        if status == 404:
            raise ObjectMissing(f"{self.url} has no object {name}.")
        if status in (400, 401, 403):  # S3 says 403 for wrong and for expired signatures
            denied = 401 if status == 401 else 403
            raise AccessDenied(f"{self.url} refuses {name} ({status}).", status=denied)
        raise StoreUnreachable(f"{name} in {self.url}: the store answers with {status}.")

    def _signed(self, method: str, name: str) -> str:
        """The client's presigned address for this object, if it is one of this endpoint."""
        check_name(name)
        given = self._access.reads if method == "GET" else self._access.writes
        url = given.get(name)
        if url is None:
            raise AccessDenied(f"The request brings no presigned {method} for {name}.")
        if not _AS_SIGNED.fullmatch(url):  # what else is in it, we and urllib3 read differently
            raise AccessDenied(f"The presigned {method} for {name} is no address.")
        try:
            ours = origin(url) == origin(self._endpoint)
            parts = urlsplit(url)
        except (ConfigError, ValueError):
            ours = False
        if not ours or parts.username or parts.password or "\\" in url:
            raise AccessDenied(f"The presigned {method} for {name} is for another endpoint.")
        if unquote(parts.path) != self._path + name or "//" in parts.path:
            raise AccessDenied(f"The presigned {method} for {name} is for another object.")
        signed = parse_qsl(parts.query, keep_blank_values=True)
        if not dict(signed).get("X-Amz-Signature"):
            raise AccessDenied(f"The {method} for {name} is not signed.", status=401)
        keys = {key.lower() for key, _ in signed}
        # the store believes one of them, and we might count the request for the other
        if len(keys) < len(signed):
            raise AccessDenied(f"The presigned {method} for {name} says something twice.")
        if "awsaccesskeyid" in keys:
            raise AccessDenied(f"The {method} for {name} is signed by version 2. Take version 4.")
        return url


def open_presigned(
    url: str, bucket: str, prefix: str, access: Access, settings: StoreSettings
) -> PresignedStore:
    """A data set of the configured endpoint, read by what the client has signed."""
    if not settings.s3_endpoint:
        raise AccessDenied("This server has no S3 endpoint to send requests to.", status=401)
    endpoint = settings.check_private(settings.s3_endpoint).rstrip("/")
    path = f"{urlsplit(endpoint).path}/{bucket}/{prefix}"
    return PresignedStore(url, path, access, endpoint, settings.store_timeout_s)


@cache
def _pool(timeout_s: float) -> Any:
    """Connections that all presigned stores share."""
    try:
        import urllib3
    except ImportError:
        raise MissingDependency(
            "urllib3 is not installed. Install it with: pip install 'garfield-ml[split]'"
        ) from None
    return urllib3.PoolManager(
        maxsize=KEPT,
        timeout=urllib3.Timeout(timeout_s),
        retries=urllib3.Retry(
            2,
            redirect=False,
            backoff_factor=0.1,
            status_forcelist=(500, 502, 503, 504),
            raise_on_status=False,
        ),
    )
