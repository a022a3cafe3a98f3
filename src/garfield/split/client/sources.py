"""Where a piece's features come from: servers, the store itself, or what is kept of both.

    ServerSource    one POST per piece: the first layers run beside the store
    StoreSource     the object as it is stored, transformed here: split 0, and the baseline
    LocalSource     images of another source, passed through layers here: to keep what they give
    CachedSource    another source behind a cache; a hit is authorised again

and `materialised.FeatureObjects`: features that lie beside the data. All give the same numbers
for the same piece, epoch and split, and count their bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from garfield.core.errors import RequestRefused, StoreUnreachable
from garfield.split import wire
from garfield.split.client.cache import Array, FeatureCache, key_of
from garfield.split.client.data_set import DataSet
from garfield.split.client.sampler import Piece
from garfield.split.client.servers import Servers

if TYPE_CHECKING:
    from torch import nn

    from garfield.split.transforms import Transforms

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Rows:
    """The features of a piece, in its order."""

    values: Array
    """(samples, …), float32."""
    labels: tuple[int, ...]
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the server said of the work: COS batch, seconds, peak memory."""


class Source(Protocol):
    """Gives the features of a piece; called from several threads at once."""

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        """The piece's features, with the randomness of that epoch."""


class Traffic:
    """Bytes over the link, counted by whoever receives them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received_bytes = self.requests = self.hits = self.remade = 0

    def count(
        self, *, received: int = 0, requests: int = 0, hits: int = 0, remade: int = 0
    ) -> None:
        with self._lock:
            self.received_bytes += received
            self.requests += requests
            self.hits += hits
            self.remade += remade


def request_for(
    asked: wire.ExtractRequest, data: DataSet, piece: Piece, epoch: int
) -> wire.ExtractRequest:
    """A training's request for a piece: `asked` is the same for all but object, samples, epoch."""
    stored = data.objects[piece.object]
    return replace(
        asked,
        object_name=stored.name,
        sha256=stored.sha256,
        samples=piece.indices,
        first_sample_id=data.first_ids[piece.object],
        epoch=epoch,
    )


def with_renewed_token(data: DataSet, name: str, ask: Callable[[], Answer]) -> Answer:
    """What a server answers; asked once more if our token had expired."""
    try:
        return ask()
    except RequestRefused as refused:
        if refused.refusal != wire.Refusal.UNAUTHORISED.word:
            raise
    data.authorise(name)  # renews a token that has expired
    return ask()


class ServerSource:
    """Features computed beside the store, one POST per piece."""

    def __init__(
        self,
        data: DataSet,
        servers: Servers | None,
        asked: wire.ExtractRequest,
        shape: tuple[int, ...],
        traffic: Traffic,
    ) -> None:
        """`asked` is a request of this training, save for object, samples and epoch; `shape` is
        that of one sample's features."""
        self._data, self._servers, self._asked = data, servers, asked
        self._shape, self._traffic = shape, traffic

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        request, servers = request_for(self._asked, self._data, piece, epoch), self._servers
        assert servers is not None

        def ask() -> wire.Features:
            access = self._data.access_for(request)
            return servers.extract(request, access, self._shape, len(piece))

        features = with_renewed_token(self._data, request.object_name, ask)
        self._traffic.count(received=features.received_bytes, requests=1)
        values = features.values.astype(np.float32, copy=False)
        return Rows(values, features.labels, features.trailer)


class StoreSource:
    """Objects as they are stored, read and transformed by the client: nothing is pushed down."""

    def __init__(
        self,
        data: DataSet,
        transforms: Transforms,
        seed: int,
        traffic: Traffic,
        give_up_s: float = 60.0,
    ) -> None:
        self._data, self._transforms, self._seed = data, transforms, seed
        self._traffic, self._give_up_s = traffic, give_up_s

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        stored = self._data.objects[piece.object]
        raw = persistently(lambda: self._data.store.get(stored.name), self._give_up_s)
        self._traffic.count(received=len(raw), requests=1)
        held = self._data.parsed(piece.object, raw)
        first = self._data.first_ids[piece.object]
        batch = self._transforms.apply(
            held.images(list(piece.indices)),
            [first + index for index in piece.indices],
            self._seed,
            epoch,
        )
        labels = tuple(int(held.labels[index]) for index in piece.indices)
        return Rows(np.asarray(batch), labels)


class LocalSource:
    """Features that are computed here, of another source's images."""

    def __init__(self, images: Source, prefix: nn.Module, chunk: int = 0) -> None:
        """With a chunk, so many samples pass at a time."""
        self._images, self._prefix, self._chunk = images, prefix, chunk

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        import torch

        rows = self._images.fetch(piece, epoch)
        images = torch.from_numpy(rows.values)
        with torch.no_grad():
            parts = [self._prefix(part) for part in torch.split(images, self._chunk or len(images))]
        return replace(rows, values=torch.cat(parts).numpy())


class CachedSource:
    """Another source, asked only for what is not kept.

    `depends_on` is all that the features depend on but object and epoch. With random transforms
    epochs share `variants` sets of features, in turn.
    """

    def __init__(
        self,
        inner: Source,
        data: DataSet,
        cache: FeatureCache,
        depends_on: Mapping[str, Any],
        traffic: Traffic,
    ) -> None:
        self._inner, self._data, self._cache = inner, data, cache
        self._depends_on, self._traffic = dict(depends_on), traffic

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        stored = self._data.objects[piece.object]
        key = key_of(
            self._depends_on | {"object": stored.name, "sha256": stored.sha256, "epoch": epoch}
        )
        found = self._cache.read(key, piece.indices)
        if found:
            self._data.authorise(stored.name)  # may have been withdrawn since
            self._traffic.count(hits=len(found))
        told: Mapping[str, Any] = {}
        missing = tuple(index for index in piece.indices if index not in found)
        if missing:
            rows = self._inner.fetch(Piece(piece.object, missing), epoch)
            told = rows.told
            self._cache.write(key, stored.count, missing, rows.values, rows.labels)
            found |= {
                index: (row, label)
                for index, row, label in zip(missing, rows.values, rows.labels, strict=True)
            }
        values = np.stack([found[index][0] for index in piece.indices])
        return Rows(values, tuple(found[index][1] for index in piece.indices), told)


def persistently(read: Callable[[], bytes], give_up_s: float = 60.0) -> bytes:
    """Read from the store, again and again while it fails for reasons that pass."""
    deadline, pause_s = time.monotonic() + give_up_s, 0.1
    while True:
        try:
            return read()
        except StoreUnreachable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(pause_s)
            pause_s = min(2.0, 2 * pause_s)
