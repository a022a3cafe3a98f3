"""Weights on the server's disk: fetched once, checked by their hash, used by every worker.

They are read from the tenant's own container, with the tenant's rights, under the name that
their hash gives them; at every request the store is asked anew whether the tenant may read
them, also where the file is here already. What the server has written itself is in its own
page cache, and does not count as memory of the worker that reads it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from garfield.core.files import replacing
from garfield.split.server.reading import read_object
from garfield.split.wire import Refusal

if TYPE_CHECKING:
    from garfield.split.stores import Store

Answer = TypeVar("Answer")
InThread = Callable[[Callable[[], Answer]], Awaitable[Answer]]


@dataclass(frozen=True)
class WeightsFile:
    """Weights that the server has fetched and checked."""

    path: str
    size: int


class WeightsCache:
    """Files by hash, the least used of them removed when they take too much room."""

    def __init__(self, directory: Path, kept_bytes: int, most_bytes: int) -> None:
        self._directory, self._kept_bytes, self._most_bytes = directory, kept_bytes, most_bytes
        self._files: OrderedDict[str, WeightsFile] = OrderedDict()
        self._held: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}
        self.fetched_bytes = 0

    @asynccontextmanager
    async def held(
        self, store: Store, digest: str, in_thread: InThread[WeightsFile | None]
    ) -> AsyncIterator[WeightsFile]:
        """The file of these weights, there as long as the block lasts.

        Blocking calls of the store are made by `in_thread`.
        """
        from garfield.split.models.weights import weights_name

        name = weights_name(digest)
        self._held[digest] += 1
        lock = self._locks.setdefault(digest, asyncio.Lock())
        try:
            async with lock:  # two that ask at once fetch once
                known = self._files.get(digest)
                file = await in_thread(lambda: self._checked(store, name, digest, known))
                assert file is not None
                self._files[digest] = file
                self._files.move_to_end(digest)
            self._make_room()
            yield file
        finally:
            self._held[digest] -= 1
            if not self._held[digest]:
                del self._held[digest]
                self._locks.pop(digest, None)

    def _checked(
        self, store: Store, name: str, digest: str, known: WeightsFile | None
    ) -> WeightsFile:
        size = store.size(name)  # asks whether this tenant may read them
        if known is not None and known.size == size:
            return known
        if size > self._most_bytes:
            raise Refusal.TOO_LARGE.error(
                f"{name} has {size} bytes; this server takes weights of {self._most_bytes}."
            )
        data = read_object(store, name, size)
        if hashlib.sha256(data).hexdigest() != digest:
            raise Refusal.BROKEN_OBJECT.error(f"{name} was altered: its hash is not its name.")
        path = self._directory / f"{digest}.safetensors"
        try:
            with replacing(path) as partial:
                partial.write_bytes(data)
        except OSError as problem:
            raise Refusal.FAILED.error(
                f"This server cannot keep {name}, {size} bytes: {problem.strerror}. Try another, "
                "or make room where its temporary files go (TMPDIR)."
            ) from None
        self.fetched_bytes += size
        return WeightsFile(str(path), size)

    def _make_room(self) -> None:
        total = sum(file.size for file in self._files.values())
        for digest in [*self._files]:
            if total <= self._kept_bytes:
                return
            if not self._held[digest]:
                file = self._files.pop(digest)
                Path(file.path).unlink(missing_ok=True)
                total -= file.size
