"""A labelled set of images, split for training and testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError, UnknownName
from garfield.core.types import Indices
from garfield.data.contract import Split

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""What is stored: images (count, height, width) or (count, height, width, channels), labels."""

Images: TypeAlias = npt.NDArray[np.float32]
"""Images as a model takes them: (count, channels, height, width)."""

Labels: TypeAlias = npt.NDArray[np.int64]
"""(count,) numbers of classes."""


def normalised(pixels: Bytes, mean: Sequence[float], std: Sequence[float]) -> Images:
    """(x / 255 − mean) / std, per channel."""
    if pixels.ndim == 3:
        pixels = pixels[..., np.newaxis]
    scale = 1 / (255 * np.asarray(std, dtype=np.float64))
    shift = np.asarray(mean, dtype=np.float64) / std
    # transpose while a pixel is one byte, not four
    images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
    images *= scale.astype(np.float32).reshape(-1, 1, 1)
    images -= shift.astype(np.float32).reshape(-1, 1, 1)
    return images


def scaled(pixels: Bytes) -> Images:
    """x / 255: from 0 to 1."""
    return normalised(pixels, (0.0,), (1.0,))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as bytes (0 is black), and the number of each one's class."""

    x_train: Bytes
    """(count, height, width), or (count, height, width, channels)"""
    y_train: Bytes
    """(count,)"""
    x_test: Bytes
    y_test: Bytes
    classes: tuple[str, ...]
    """What each class number means."""
    mean: tuple[float, ...] = (0.5,)
    """What `images` subtracts from pixels between 0 and 1, per channel."""
    std: tuple[float, ...] = (0.5,)
    """What `images` then divides by, per channel."""

    def __post_init__(self) -> None:
        for split, pixels, labels in (
            ("train", self.x_train, self.y_train),
            ("test", self.x_test, self.y_test),
        ):
            _require_fit(split, pixels, labels, len(self.classes))
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise InputError(
                f"Images are {self.x_train.shape[1:]} in train and {self.x_test.shape[1:]} in test."
            )

    def __repr__(self) -> str:
        counts = f"{len(self.x_train)} train, {len(self.x_test)} test"
        return f"<dataset of {len(self.classes)} classes: {counts}>"

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)"""
        height, width, *channels = self.x_train.shape[1:]
        return (channels[0] if channels else 1, height, width)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image, as `LearningData` calls it."""
        return self.image

    @property
    def class_count(self) -> int:
        return len(self.classes)

    def pixels(self, split: Split) -> Bytes:
        """The bytes of a split, as stored."""
        return self.x_train if is_train(split) else self.x_test

    def inputs(self, split: Split) -> Bytes:
        """The bytes of a split, as `LearningData` calls them."""
        return self.pixels(split)

    def targets(self, split: Split) -> Labels:
        """The labels of a split, as `LearningData` calls them."""
        return self.labels(split)

    def labels(self, split: Split) -> Labels:
        """(count,) int64"""
        return (self.y_train if is_train(split) else self.y_test).astype(np.int64)

    def images(self, split: Split, index: Indices | slice = slice(None)) -> Images:
        """(count, channels, height, width) float32, normalised: all of a split, or some."""
        return self.prepare(self.pixels(split)[index])

    def prepare(self, pixels: Bytes) -> Images:
        """What a model takes, made of what is stored: the last step of `Batches`."""
        return normalised(pixels, self.mean, self.std)


def is_train(split: str) -> bool:
    """Whether it is the split to train on; UnknownName if it is none."""
    if split not in ("train", "test"):
        raise UnknownName("a split", split, ("train", "test"))
    return split == "train"


def _require_fit(split: str, pixels: Bytes, labels: Bytes, classes: int) -> None:
    """An image for every label, and a class for every label."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4):
        raise InputError(
            f"{split}: images must be bytes, (count, height, width) or (count, height, width, "
            f"channels), got {pixels.dtype} {pixels.shape}."
        )
    if labels.shape != (len(pixels),) or labels.dtype.kind not in "ui":
        raise InputError(
            f"{split}: {len(pixels)} images need as many whole-numbered labels, "
            f"got {labels.dtype} {labels.shape}."
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise InputError(
            f"{split}: labels run from {labels.min()} to {labels.max()}, "
            f"not within 0..{classes - 1}."
        )
