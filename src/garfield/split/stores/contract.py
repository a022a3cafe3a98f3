"""What a store is: named objects that are read whole or in part, put, listed and deleted.

A store is opened at a URL, and a name is relative to it. Four errors say what went wrong, and
code may branch on them: `ObjectMissing`, `AccessDenied` (its `status` 401 or 403),
`StoreUnreachable` (worth a retry), and `InputError` for a name that no object can have.

A store may be used from several threads at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from garfield.core.errors import InputError

if TYPE_CHECKING:
    from garfield.split.stores.access import Access

MAX_NAME = 512
REQUEST_S = 3600
"""How long rights for one request last, in seconds: longer than it may queue."""
TRAINING_S = 7 * 24 * 3600
"""And those for a whole training, which nobody can renew on the way: as long as S3 lets a signature
hold. Those by a token of Swift, or by temporary keys of S3, end with it."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


class Store(Protocol):
    """Objects by name, under one URL."""

    url: str

    def get(self, name: str) -> bytes:
        """The whole object."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """So many bytes from there on, fewer where the object ends."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store an object under that name, in place of what was there."""
        ...

    def size(self, name: str) -> int:
        """How many bytes an object has: asks the store, and so also whether it may be read."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """The names of all objects that begin so, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; ObjectMissing if there is none."""
        ...

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        """What a server needs to read these objects on our behalf, and write those.

        `endpoint` is where the server reaches the store, if that is not where we do. `lasts_s` is
        for how long it needs them, where that is ours to say: tokens last as long as they do.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def check_name(name: Any) -> str:
    """A name that means the same in every store; InputError for any other."""
    if not isinstance(name, str) or not name:
        raise InputError(f"An object's name is a text, got {str(name)[:40]!r}.")
    if len(name.encode("utf-8", "replace")) > MAX_NAME:
        raise InputError(f"An object's name has at most {MAX_NAME} bytes, got {len(name)}.")
    parts = name.split("/")
    if _UNPRINTABLE.search(name) or "\\" in name or any(p in ("", ".", "..") for p in parts):
        raise InputError(
            f"{name[:80]!r} is no name of an object: its parts between slashes must not be empty, "
            "'.' or '..', and hold no control characters."
        )
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{name[:80]!r} is no name of an object: it is not UTF-8.") from None
    return name


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 1:
        raise InputError(f"A range begins at 0 or later and has a byte, got {start}, {length}.")
