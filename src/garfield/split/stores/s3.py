"""S3 and what speaks like it, through obstore: for whoever has keys.

obstore (the Rust library object_store) reads as fast as boto3 (benchmarks/split_stores.py), on
less processor time for objects of up to a few megabytes and more for those of sixty, writes
faster, and needs nothing else, where boto3 needs an old python-dateutil. What a client hands to
a server are presigned GETs, made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from garfield.core.errors import (
    AccessDenied,
    MissingDependency,
    ObjectMissing,
    StoreUnreachable,
)
from garfield.split.stores.access import Access
from garfield.split.stores.contract import REQUEST_S, check_name, check_range
from garfield.split.stores.settings import StoreSettings


class S3Store:
    """Objects of one bucket, under one prefix."""

    def __init__(self, url: str, bucket: str, prefix: str, settings: StoreSettings) -> None:
        self.url = url
        self._bucket, self._prefix = bucket, prefix
        self._settings = settings
        self._obstore = _obstore()
        self._store = self._opened(settings.s3_endpoint)

    def get(self, name: str) -> bytes:
        with self._errors(name):
            return bytes(self._store.get(self._key(name)).bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._errors(name):
            size = int(self._store.head(self._key(name))["size"])
            if start >= size:
                return b""
            length = min(length, size - start)
            return bytes(self._store.get_range(self._key(name), start=start, length=length))

    def put(self, name: str, data: bytes) -> None:
        with self._errors(name):
            self._store.put(self._key(name), data, use_multipart=False)

    def size(self, name: str) -> int:
        with self._errors(name):
            return int(self._store.head(self._key(name))["size"])

    def names(self, prefix: str = "") -> list[str]:
        """obstore lists by whole folders; the rest of the prefix is compared here."""
        folder = (self._prefix + prefix).rpartition("/")[0]
        with self._errors(prefix):
            pages = self._store.list(folder or None)
            found = [str(entry["path"]) for page in pages for entry in page]
        begin = self._prefix + prefix
        return sorted(key[len(self._prefix) :] for key in found if key.startswith(begin))

    def delete(self, name: str) -> None:
        with self._errors(name):
            self._store.head(self._key(name))  # S3 deletes what is not there without a word
            self._store.delete(self._key(name))

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        store = self._store if endpoint is None else self._opened(endpoint)
        return Access(
            "s3",
            reads={name: self._signed(store, "GET", name, lasts_s) for name in names},
            writes={name: self._signed(store, "PUT", name, lasts_s) for name in writes},
        )

    def close(self) -> None:
        """obstore closes its connections when it is forgotten."""

    def _signed(self, store: Any, method: str, name: str, lasts_s: int) -> str:
        with self._errors(name):
            lasting = timedelta(seconds=lasts_s)
            return str(self._obstore.sign(store, method, self._key(name), lasting))

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _opened(self, endpoint: str | None) -> Any:
        settings = self._settings
        plain = endpoint is not None and urlsplit(endpoint).scheme == "http"
        if endpoint is not None:
            settings.check_private(endpoint)
        given = {
            "endpoint": endpoint,
            "region": settings.s3_region,
            "access_key_id": settings.s3_access_key,
            "secret_access_key": settings.s3_secret_key,
            "session_token": settings.s3_session_token,
        }
        return self._obstore.store.S3Store(
            self._bucket,
            virtual_hosted_style_request=False,
            client_options={"allow_http": plain, "timeout": f"{settings.store_timeout_s:g}s"},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=30)},
            **{name: value for name, value in given.items() if value is not None},
        )

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """obstore's errors as ours; their text may hold signatures, so little of it is kept."""
        exceptions = self._obstore.exceptions
        try:
            yield
        except FileNotFoundError:
            raise ObjectMissing(f"{self.url} has no object {name}.") from None
        except exceptions.UnauthenticatedError:
            raise AccessDenied(f"{self.url} refuses {name} (401).", status=401) from None
        except exceptions.PermissionDeniedError:
            raise AccessDenied(f"{self.url} refuses {name} (403).") from None
        except (exceptions.BaseError, OSError) as problem:
            why = str(problem).partition("\n")[0].partition("?X-Amz")[0][:300]
            raise StoreUnreachable(f"{name} in {self.url}: {why}") from None


def open_s3(url: str, bucket: str, prefix: str, settings: StoreSettings) -> S3Store:
    return S3Store(url, bucket, prefix, settings)


def _obstore() -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError:
        raise MissingDependency(
            "obstore is not installed. Install it with: pip install 'garfield-ml[split]'"
        ) from None
    return obstore
