"""Object stores: files, OpenStack Swift and S3, behind one contract.

    store = open_store("swift://photos/train")              # with our own rights
    store = open_store("s3://photos/train", access, settings)  # a server, with a client's

A store's client is imported only in that store's file, and only when it is opened.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from garfield.core.errors import AccessDenied, ConfigError, InputError, UnknownName
from garfield.split.stores.access import Access
from garfield.split.stores.contract import Store, check_name
from garfield.split.stores.settings import StoreSettings

__all__ = ["SCHEMES", "Access", "Store", "StoreSettings", "check_name", "open_store"]

SCHEMES = ("file", "swift", "s3")


def open_store(
    url: str, access: Access | None = None, settings: StoreSettings | None = None
) -> Store:
    """Open a store at file:///directory, swift://container/prefix or s3://bucket/prefix.

    Without `access`, with our own rights: what `settings` does not say is taken from the
    environment. With it, with those rights alone, as a server does for its clients.
    """
    settings = StoreSettings() if settings is None else settings
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise UnknownName("a kind of store", scheme or url[:40], SCHEMES)
    if access is not None and access.kind != scheme:
        raise AccessDenied(f"A token for {access.kind} opens no {scheme} store.", status=401)
    if scheme == "file":
        from garfield.split.stores import files

        return files.open_files(_directory(url), url, access, _own(settings, access))
    bucket, prefix = _bucket(url)
    if scheme == "swift":
        from garfield.split.stores import swift

        return swift.open_swift(url, bucket, prefix, access, _own(settings, access))
    if access is None:
        from garfield.split.stores import s3

        return s3.open_s3(url, bucket, prefix, _own(settings, access))
    from garfield.split.stores import presigned

    return presigned.open_presigned(url, bucket, prefix, access, settings)


def _own(settings: StoreSettings, access: Access | None) -> StoreSettings:
    """With the environment's keys only where we act for ourselves."""
    return settings.with_environment() if access is None else settings


def _directory(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{url[:80]} is no directory. Write file:///directory.")
    if parts.query or parts.fragment or "\0" in (path := unquote(parts.path)):
        raise ConfigError(f"{url[:80]} is no directory: write ?, # and such as %3F, %23.")
    return path


def _bucket(url: str) -> tuple[str, str]:
    """Bucket or container, and the prefix of names in it: empty, or ending with a slash."""
    parts = urlsplit(url)
    bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    try:
        check_name(unquote(bucket))
        if prefix:
            check_name(prefix)
    except InputError as problem:
        raise ConfigError(f"{url[:80]} is no store: {problem}") from None
    bucket = unquote(bucket)
    if {*"@:/"} & {*bucket} or parts.query or parts.fragment or len(bucket) > 255:
        raise ConfigError(
            f"{url[:80]} is no store. Write {parts.scheme}://bucket/prefix; "
            "address and keys are settings."
        )
    return bucket, prefix + "/" if prefix else ""
