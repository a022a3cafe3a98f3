"""Data sets by name: `load` reads one, from the package or from a data directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from garfield.core.errors import InputError
from garfield.core.registry import Registry
from garfield.data.contract import LearningData
from garfield.data.dataset import Dataset
from garfield.data.image_kinds import CIFAR10, DIGITS, FASHION, MNIST
from garfield.data.shipped import digits, fashion_small
from garfield.data.stored import data_directory, read_cifar10, read_fashion, read_mnist


@dataclass(frozen=True)
class DatasetEntry:
    """A data set that can be loaded, before any file is opened.

    One of your own is
    ``DATASETS.add("mine", DatasetEntry("mine", "my images", (1, 28, 28), read))``.
    """

    name: str
    about: str
    """One line for listings."""
    image: tuple[int, int, int] | None
    """(channels, height, width); None: no images, or of a size that only the files say."""
    read: Callable[[Path], LearningData]
    """Reads the set from the data directory; InputError when it is not there."""
    ships: bool = False
    """It lies in the package: no data directory is needed."""


DATASETS: Registry[DatasetEntry] = Registry("a data set")


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """The images of that name; `data_dir` is else $GARFIELD_DATA, else ~/.cache/garfield."""
    found = load_any(name, data_dir)
    if not isinstance(found, Dataset):
        raise InputError(f"{name} holds no images by class, which are needed here.")
    return found


def load_any(name: str, data_dir: str | os.PathLike[str] | None = None) -> LearningData:
    """The data set of that name, whatever its samples are."""
    return DATASETS[name].read(data_directory(data_dir))


for _entry in (
    DatasetEntry(
        "digits", "1,797 handwritten digits", DIGITS.image, lambda _: digits(), ships=True
    ),
    DatasetEntry(
        "fashion-small",
        "2,500 images of clothes, from Fashion-MNIST",
        FASHION.image,
        lambda _: fashion_small(),
        ships=True,
    ),
    DatasetEntry("mnist", "70,000 handwritten digits", MNIST.image, read_mnist),
    DatasetEntry("fashion", "70,000 images of clothes: Fashion-MNIST", FASHION.image, read_fashion),
    DatasetEntry("cifar10", "60,000 photographs in ten classes", CIFAR10.image, read_cifar10),
):
    DATASETS.add(_entry.name, _entry)
