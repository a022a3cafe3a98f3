"""Random numbers that depend on where and when they are drawn, and on nothing drawn before."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from garfield.core.errors import InputError
from garfield.data import Batches
from garfield.fedgan.device import drawing_from


def drawn_from(*numbers: int) -> AbstractContextManager[None]:
    """What torch draws inside depends on these numbers alone; its own state stays as it is.

    Dropout draws from that state and from no other.
    """
    return drawing_from(mixed(*numbers))


def mixed(*numbers: int) -> int:
    """One seed made of several numbers, each of which changes it altogether."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


class LocalImages:
    """Images (n, c, h, w) in [-1, 1] and labels (n,) at one place, as batches without end.

    Every image comes once per epoch; a batch larger than the data holds some of them twice.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch: int, *seed: int) -> None:
        if images.ndim != 4 or not images.is_floating_point():
            raise InputError(
                f"Images to train on must be floats (n, channels, height, width) in [-1, 1], "
                f"got {images.dtype} {tuple(images.shape)}."
            )
        self.image: tuple[int, int, int] = tuple(images.shape[1:])  # type: ignore[assignment]
        self._batches = Batches(
            images.numpy(), labels.numpy(), np.arange(len(images)), batch, seed, prepare=_as_is
        )

    def __len__(self) -> int:
        return len(self._batches.targets)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images and labels of this step."""
        images, labels = self._batches.batch(step)
        return torch.from_numpy(images), torch.from_numpy(labels)


def _as_is(images: Any) -> Any:
    return images
