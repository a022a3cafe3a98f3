"""A data set in a store, as a client sees it: its objects, and who may read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from garfield.core.errors import ConfigError
from garfield.split.objects import ObjectEntry, StoredObject, open_object, read_index
from garfield.split.stores import StoreSettings, open_store
from garfield.split.stores.contract import REQUEST_S

if TYPE_CHECKING:
    from garfield.split.stores.contract import Store
    from garfield.split.wire import ExtractRequest


@dataclass(frozen=True)
class DataSet:
    """Some of the objects of a store, in the order of its index."""

    url: str
    store: Store
    objects: tuple[ObjectEntry, ...]
    first_ids: tuple[int, ...]
    """The number of each object's first sample, over the whole index."""
    classes: tuple[str, ...]
    """Names of the classes; empty if the store does not tell them."""
    kind: str
    """How images are stored: jpeg, uint8, float32, or webdataset."""
    server_endpoint: str | None = None
    """Where servers reach the store, if that is not where we do."""

    @classmethod
    def open(
        cls,
        url: str,
        settings: StoreSettings | None = None,
        server_endpoint: str | None = None,
    ) -> DataSet:
        """The data set at a URL."""
        store = open_store(url, settings=settings or StoreSettings())
        try:
            index = read_index(store)
        except BaseException:
            store.close()
            raise
        return cls(
            url, store, index.objects, index.first_ids, index.classes, index.kind, server_endpoint
        )

    @property
    def stored_bytes_per_sample(self) -> float:
        """What a sample takes in the store, on average."""
        total = sum(stored.count for stored in self.objects)
        return sum(stored.bytes for stored in self.objects) / total

    def held_out(self, count: int) -> tuple[DataSet, DataSet]:
        """All but the last objects, and those: samples keep their numbers."""
        if not 0 < count < len(self.objects):
            raise ConfigError(
                f"holdout must be within 1..{len(self.objects) - 1}: the data set has "
                f"{len(self.objects)} objects, and some must be left to train on; got {count}."
            )
        return self._some(slice(0, -count)), self._some(slice(-count, None))

    def parsed(self, number: int, raw: bytes) -> StoredObject:
        """An object that was read; ObjectDamaged if it is not what the index says."""
        stored = self.objects[number]
        return open_object(stored.name, raw, stored.sha256)

    def access(
        self, names: Sequence[str], writes: Sequence[str] = (), lasts_s: int = REQUEST_S
    ) -> str:
        """What a server must be shown to read and write these names on our behalf, for so long."""
        return self.store.access(
            names, writes=writes, endpoint=self.server_endpoint, lasts_s=lasts_s
        ).as_header()

    def access_for(self, request: ExtractRequest, writes: Sequence[str] = ()) -> str:
        """What a server must be shown to answer this request."""
        from garfield.split.models.weights import weights_name

        names = [request.object_name]
        if request.weights is not None:
            names.append(weights_name(request.weights))
        return self.access(names, writes)

    def authorise(self, name: str) -> None:
        """Ask the store whether we may still read an object; AccessDenied if not."""
        self.store.size(name)

    def close(self) -> None:
        self.store.close()

    def _some(self, which: slice) -> DataSet:
        return replace(self, objects=self.objects[which], first_ids=self.first_ids[which])
