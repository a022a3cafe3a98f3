"""Features that lie beside the data: made once by the servers, read from the store ever after.

Before an epoch the store is asked which features it has; the servers make the others, an object
at a time, and put them there with our rights: nothing of this crosses our link but the requests.
Then every epoch, also of later runs, reads features as it would read images, without any server.

A hit is authorised twice: by the store, which gives the features to us, and by asking it whether
we may still read the object that they are of. Features that are not what their name says count as
absent, and are made anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from garfield.core.errors import ObjectDamaged, ObjectMissing, SplitError
from garfield.split import wire
from garfield.split.client.ahead import Ahead
from garfield.split.client.sampler import Piece
from garfield.split.client.sources import (
    Rows,
    ServerSource,
    persistently,
    request_for,
    with_renewed_token,
)
from garfield.split.feature_objects import features_folder, features_name, open_features

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Extraction:
    """What had to be extracted before an epoch could read features from the store."""

    objects: int
    """Whose features were looked for by this client."""
    made: int
    """Of which the servers computed features now; those of the others were there."""
    stored_bytes: int
    """What was put into the store."""
    seconds: float


class FeatureObjects(ServerSource):
    """Reads features from the store, and has the servers make what is missing."""

    def extract(
        self, epoch: int, rank: int, ranks: int, progress: Progress = lambda done, total: None
    ) -> Extraction:
        """Have features made that are not there; of several ranks each does its share."""
        began = time.monotonic()
        there = {*self._data.store.names(f"{features_folder(self._request(0, epoch))}/")}
        share = [self._request(at, epoch) for at in range(rank, len(self._data.objects), ranks)]
        missing = [request for request in share if features_name(request) not in there]
        stored = 0
        if missing:
            threads = self._servers.connections if self._servers is not None else 1
            with Ahead(threads) as ahead:
                for done, told in enumerate(ahead.run(self._make, missing, 2 * threads), 1):
                    stored += int(told["stored_bytes"])
                    progress(done, len(missing))
        return Extraction(len(share), len(missing), stored, time.monotonic() - began)

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        request = self._request(piece.object, epoch)
        self._data.authorise(request.object_name)  # may have been withdrawn since
        told: Mapping[str, Any] = {}
        try:
            found = self._read(request)
        except (ObjectMissing, ObjectDamaged):
            told = self._make(request)
            self._traffic.count(remade=1)
            found = self._read(request)
        indices = list(piece.indices)
        values = found.values[indices].astype(np.float32, copy=False)
        return Rows(values, tuple(found.labels[index] for index in indices), told)

    def _read(self, request: wire.ExtractRequest) -> wire.Features:
        raw = persistently(lambda: self._data.store.get(features_name(request)))
        self._traffic.count(received=len(raw), requests=1)
        return open_features(request, raw, self._shape)

    def _make(self, request: wire.ExtractRequest) -> Mapping[str, Any]:
        servers = self._servers
        if servers is None:
            raise SplitError(
                f"{self._data.url} holds no features of {request.object_name} for this model, "
                "split and transforms. Name a server with --server to have them made."
            )
        name, body = features_name(request), wire.encode_request(request)

        def ask() -> Mapping[str, Any]:
            access = self._data.access_for(request, writes=[name])
            return servers.post("/v1/materialise", body, access)

        told = with_renewed_token(self._data, request.object_name, ask)
        if told.get("name") != name or not isinstance(told.get("stored_bytes"), int):
            raise SplitError(f"A server put features of {request.object_name} somewhere else.")
        return told

    def _request(self, number: int, epoch: int) -> wire.ExtractRequest:
        every = tuple(range(self._data.objects[number].count))
        return request_for(self._asked, self._data, Piece(number, every), epoch)
