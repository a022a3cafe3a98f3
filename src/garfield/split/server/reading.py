"""Reading from a store with a tenant's rights, in the server and in its workers alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from garfield.core.errors import ObjectDamaged
from garfield.split.server.extraction_sizes import READ
from garfield.split.wire import Refusal

if TYPE_CHECKING:
    from garfield.split.stores import Store


def tenants_store(data: str, access: str, settings: Mapping[str, Any]) -> Store:
    """The store with the rights that a tenant's header carries, and no more."""
    from garfield.split.stores import Access, StoreSettings, open_store

    return open_store(data, Access.from_header(access), StoreSettings(**settings))


def tenant_of(access: str, name: str) -> str:
    """A digest of whose rights a tenant's header carries; true once they have read that object."""
    from garfield.split.stores import Access

    return Access.from_header(access).tenant(name)


def read_object(store: Store, name: str, size: int) -> bytes | bytearray:
    """An object of that size, in pieces: nothing is ever held twice."""
    if size <= READ:
        data = store.get(name)
        if len(data) != size:
            raise ObjectDamaged(f"{name} has {len(data)} bytes now, and had {size} a moment ago.")
        return data
    whole, filled = bytearray(size), 0
    while filled < size:
        piece = store.get_range(name, filled, min(READ, size - filled))
        if not 0 < len(piece) <= size - filled:
            raise ObjectDamaged(f"{name} ends after {filled} of {size} bytes.")
        whole[filled : filled + len(piece)] = piece
        filled += len(piece)
    return whole


def check_below(served: str, data: str) -> None:
    """Refuse data that is not in what this server serves."""
    wanted, root = unquote(data), unquote(served).rstrip("/")
    inside = wanted == root or wanted.startswith(root + "/")
    everything = served.endswith("://") and wanted.startswith(served)
    if {".", ".."} & {*wanted.split("/")} or not (inside or everything):
        raise Refusal.FORBIDDEN.error(f"This server serves {served}, and not {data[:200]}.")
