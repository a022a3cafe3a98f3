"""Features that clusters are of: by which network, and the same whoever computes them.

A server names an extractor by its key, which holds the hash of its weights, and each device takes
its own copy of that one or none (`published_extractor`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from garfield.core.errors import ConfigError, InputError
from garfield.core.types import Indices
from garfield.fedgan.device import DeviceData
from garfield.fedgan.judging.extractors import (
    EXTRACTORS,
    EfficientNetFeatures,
    Extractor,
    SmallCnnFeatures,
    extractor_for,
)
from garfield.fedgan.judging.shipped import SHIPPED, TRAINED_ON

_IMAGES = 100  # of which features are made at once
_SIDE = 8


class PixelFeatures(Extractor):
    """Images shrunk to 8×8: needs no network, and tells apart what differs in shape or shade."""

    label = f"pixels, {_SIDE}×{_SIDE}"
    key = f"pixels {_SIDE}"
    most = 1.0

    def features(self, images: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(images, _SIDE).flatten(1)


def features_for(data: str, name: str = "auto") -> Extractor:
    """The extractor of that name; "auto" is the shipped network for the data, else pixels."""
    if name == "pixels" or (name == "auto" and data not in TRAINED_ON):
        return PixelFeatures()
    if name not in ("auto", "small-cnn", "efficientnet"):
        ours = [each for each in EXTRACTORS if each != "inception"]
        raise ConfigError(
            f"cluster_features must be auto, pixels, {' or '.join(ours)}, got {name}."
        )
    return extractor_for(data, name)


def published_extractor(key: str, image: tuple[int, int, int]) -> Extractor:
    """The extractor that a server has named; InputError if these weights are not ours."""
    for name, network in SHIPPED.items():
        if key == SmallCnnFeatures.key_of(name):
            if image != network.image:
                raise InputError(
                    f"The small network for {name} takes images of {network.image}, and those of "
                    f"this training are {image}."
                )
            return SmallCnnFeatures(name)
    if key == PixelFeatures.key:
        return PixelFeatures()
    if key.startswith(EfficientNetFeatures.name):
        ours = EfficientNetFeatures()
        if ours.key == key:
            return ours
    raise InputError(
        f"Clusters are of features by {key[:120]!r}, which this version of the library does not "
        "have. Install the version that the server has."
    )


@torch.no_grad()
def features_of(devices: Sequence[DeviceData], extractor: Extractor) -> list[Tensor]:
    """(n_k, d) features of each device's images; of an array that many share only once."""
    wanted: dict[int, list[DeviceData]] = {}
    for data in devices:
        wanted.setdefault(data.images.data_ptr(), []).append(data)
    tables: dict[int, Tensor] = {}
    for pointer, sharing in wanted.items():
        whole = DeviceData(sharing[0].images, sharing[0].labels)
        used = np.unique(np.concatenate([_rows(data) for data in sharing]))
        made = _features(whole, used, extractor)
        tables[pointer] = torch.zeros(len(whole), made.shape[1])
        tables[pointer][torch.from_numpy(used)] = made
    return [tables[data.images.data_ptr()][torch.from_numpy(_rows(data))] for data in devices]


@torch.no_grad()
def own_features(data: DeviceData, extractor: Extractor) -> Tensor:
    """(n, d) features of one device's images, the same bits that `features_of` many has."""
    return _features(data, np.arange(len(data)), extractor)


def _features(data: DeviceData, at: Indices, extractor: Extractor) -> Tensor:
    """Of these images, in batches that are all of one size.

    A network's result for an image may depend on how many others are beside it, in its last bits;
    the last batch is filled up with empty images, so that whoever has the image finds the same.
    """
    parts = []
    for start in range(0, max(len(at), 1), _IMAGES):  # of no image, too: none, and how wide
        images, _ = data.batch(at[start : start + _IMAGES])
        empty = images.new_zeros(_IMAGES - len(images), *images.shape[1:])
        parts.append(extractor.features(torch.cat([images, empty]))[: len(images)])
    return torch.cat(parts)


def _rows(data: DeviceData) -> np.ndarray:
    return np.arange(len(data.images)) if data.rows is None else data.rows
