"""Which source an epoch's features come from, by the settings and the split that was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from garfield.split import wire
from garfield.split.client.materialised import FeatureObjects
from garfield.split.client.sources import (
    CachedSource,
    LocalSource,
    ServerSource,
    Source,
    StoreSource,
)
from garfield.split.models import SPLIT_MODELS
from garfield.split.models.weights import pack_weights, put_weights, weights_hash

if TYPE_CHECKING:
    from garfield.split.client.loader import SplitLoader


def source_of(loader: SplitLoader) -> Source:
    """Images of the store, features that lie beside them, or features of servers."""
    if loader.split == 0:
        return _streaming(loader)
    asked, shape = _asked(loader), loader.shapes[loader.split]
    source = FeatureObjects if loader.loading.materialise else ServerSource
    return source(loader.data, loader.servers, asked, shape, loader.traffic)


def with_cache(loader: SplitLoader, source: Source) -> Source:
    """The source, asked only for what is not on the client's disk."""
    if loader.cache is None or not loader.come_again:
        return source
    depends_on: dict[str, Any] = {
        "data": loader.data.url,
        "cut": loader.cut,
        "transforms": loader.transforms.to_json(),
        "seed": loader.loading.seed if loader.transforms.is_random else None,
    }
    if loader.split:
        asked = _asked(loader)
        names = ("model", "graph", "weights", "dtype")
        depends_on |= {name: getattr(asked, name) for name in names}
    else:
        depends_on["weights"] = weights_hash(pack_weights(loader.model.prefix(loader.cut)))
    return CachedSource(source, loader.data, loader.cache, depends_on, loader.traffic)


def _streaming(loader: SplitLoader) -> Source:
    """Images as they are stored, or features made of them here."""
    images = StoreSource(loader.data, loader.transforms, loader.loading.seed, loader.traffic)
    if loader.cut == 0:
        return images
    return LocalSource(images, loader.model.prefix(loader.cut), loader.loading.chunk)


def _asked(loader: SplitLoader) -> wire.ExtractRequest:
    """What servers are asked, save for object, samples and epoch."""
    model, loading = loader.model, loader.loading
    graph = None
    if model.name not in SPLIT_MODELS:
        from garfield.split.models.graph import to_json

        graph = to_json(model.prefix(loader.split))
    return wire.ExtractRequest(
        loader.data.url, "-", loader.split,
        model=None if graph else model.name,
        graph=graph,
        weights=_weights(loader),
        transforms=loader.transforms.to_json(),
        seed=loading.seed,
        batch=loader.sampler.batch,
        dtype=loading.features,
        compression=loading.compression,
    )  # fmt: skip


def _weights(loader: SplitLoader) -> str:
    """The hash of the prefix's weights, which servers find in the store from now on."""
    place = (loader.data.url, loader.split)
    if place not in loader.weights:
        prefix = loader.model.prefix(loader.split)
        if loader.servers is None:  # nobody will look for them
            loader.weights[place] = weights_hash(pack_weights(prefix))
        else:
            uploaded = put_weights(loader.data.store, prefix)
            loader.uploaded_bytes += uploaded.bytes_sent
            loader.weights[place] = uploaded.hash
    return loader.weights[place]
