"""Images by name, their division among simulated devices, and clusters instead of labels.

`folder:DIR` takes pictures of the user's: one folder a class, or all in one folder, which is one
class then. They are grey if all of them are, else in colour; every tenth is held out for judging.
With `--image-side` they are scaled so that the shorter side fits, and cropped to a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from garfield.core.errors import ConfigError, InputError
from garfield.data import Dataset, load
from garfield.data.dataset import Bytes
from garfield.data.pictures import classes_in, pictures_in, read_picture, stacked
from garfield.fedgan.cluster_features import features_for, features_of
from garfield.fedgan.clustering import PublishedClusters, federated_centroids
from garfield.fedgan.device import DeviceData
from garfield.fedgan.judging.extractors import Extractor
from garfield.fedgan.partition import divided
from garfield.fedgan.settings import FedganSettings

FOLDER = "folder:"
_LARGEST = 64
_HELD_OUT = 10
"""Every so manieth image is held out."""

_PARTITION = 10  # so that no two draw the same numbers


def dataset_for(settings: FedganSettings) -> Dataset:
    """The data set that the settings name."""
    if settings.data.startswith(FOLDER):
        return read_folder(
            Path(settings.data.removeprefix(FOLDER)).expanduser(), settings.image_side
        )
    return load(settings.data, settings.data_dir)


def devices_of(dataset: Dataset, settings: FedganSettings) -> list[DeviceData]:
    """The training images of a data set, divided among devices; all share one array."""
    given = settings.population
    images = _as_tensor(dataset)
    labels = dataset.labels("train")
    rng = np.random.default_rng((settings.training.seed, _PARTITION))
    shares = divided(
        given.partition, labels, devices=given.devices, max_class=given.max_class,
        max_samples=given.max_samples, rng=rng,
    )  # fmt: skip
    return [DeviceData(images, torch.from_numpy(labels), share) for share in shares]


def clustered(
    devices: Sequence[DeviceData], settings: FedganSettings
) -> tuple[list[DeviceData], PublishedClusters]:
    """The same devices with clusters for labels, and what the server published for that.

    Their own labels are not looked at. Features of images that many devices share are computed
    once; what each device would send and decide is the same.
    """
    given = settings.population
    if given.clusters is None:
        raise ConfigError("How many clusters? Give --clusters.")
    extractor = features_for(settings.data, given.cluster_features)
    features = features_of(devices, extractor)
    if given.public_images is not None:
        published = fitted_to_public(settings, devices[0].image, extractor)
    else:
        seed = settings.training.seed
        centroids = federated_centroids(features, given.clusters, seed)
        published = PublishedClusters(extractor.key, centroids)
    tables: dict[int, Tensor] = {}  # who shares images shares their clusters too
    for data, own in zip(devices, features, strict=True):
        unused = torch.zeros(len(data.images), dtype=torch.int64)
        table = tables.setdefault(data.images.data_ptr(), unused)
        rows = slice(None) if data.rows is None else torch.from_numpy(data.rows)
        table[rows] = published.labels(own, extractor.key)
    return [data.relabelled(tables[data.images.data_ptr()]) for data in devices], published


def fitted_to_public(
    settings: FedganSettings, image: tuple[int, int, int], extractor: Extractor
) -> PublishedClusters:
    """What the server publishes without asking any device: clusters of its public images."""
    given = settings.population
    assert given.clusters is not None
    features = features_of([_public_images(settings, image)], extractor)
    centroids = federated_centroids(features, given.clusters, settings.training.seed)
    return PublishedClusters(extractor.key, centroids)


def _public_images(settings: FedganSettings, image: tuple[int, int, int]) -> DeviceData:
    """All training images of the public data set, which must be like the devices'."""
    name = settings.population.public_images
    assert name is not None
    public = dataset_for(replace(settings, data=name))
    if public.image != image:
        raise InputError(f"Public images are {public.image}, and those of devices {image}.")
    return DeviceData.unlabelled(_as_tensor(public))


def _as_tensor(dataset: Dataset) -> Tensor:
    """(n, c, h, w) bytes: the training images."""
    pixels = dataset.pixels("train")
    pixels = pixels[..., np.newaxis] if pixels.ndim == 3 else pixels
    return torch.tensor(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))  # may be read-only


def read_folder(folder: Path, side: int | None = None) -> Dataset:
    """The pictures below a folder, in the order of their names."""
    classes = classes_in(folder)
    files = [(label, path) for label, kind in enumerate(classes) for path in pictures_in(kind)]
    if len(files) < _HELD_OUT:
        raise InputError(
            f"{folder} holds {len(files)} images, and it takes {_HELD_OUT} at least: every "
            f"{_HELD_OUT}th is held out to judge by."
        )
    names = [str(path) for _, path in files]
    pixels = stacked([read_picture(path, str(path), side) for _, path in files], names)
    _require_small(pixels)
    labels = np.array([label for label, _ in files], dtype=np.int64)
    tests = np.arange(len(files)) % _HELD_OUT == _HELD_OUT - 1
    return Dataset(
        pixels[~tests], labels[~tests], pixels[tests], labels[tests],
        tuple(kind.name for kind in classes),
    )  # fmt: skip


def _require_small(pixels: Bytes) -> None:
    height, width = pixels.shape[1:3]
    if max(height, width) > _LARGEST:
        raise InputError(
            f"Images of {width}×{height} are too large: at most {_LARGEST}×{_LARGEST} can be "
            "made. Scale them: --image-side 64."
        )
