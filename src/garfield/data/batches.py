"""Batches without end, each a function of seed and step alone.

An epoch is a permutation of a worker's samples, drawn from (seed, epoch); the epochs,
one after the other, are cut into batches of one size. So a worker that restarts, or
computes step t for the second time, or for another server, gets the same batch, and
every sample is seen once per epoch. Same numpy, same batches.

To test on, `EvaluationBatches` are some samples in order, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError, InputError
from garfield.core.types import Indices
from garfield.data.contract import LearningData, Split
from garfield.data.dataset import scaled


class Batches:
    """A worker's share of a data set, as batches to train on."""

    def __init__(
        self,
        inputs: Any,
        targets: Any,
        indices: Any,
        batch: int,
        seed: int | Sequence[int],
        prepare: Callable[[Any], Any] = scaled,
    ) -> None:
        """`indices` are the share; `prepare` turns the stored inputs of one batch into what a
        model takes: images into floats, if not told otherwise.

        A seed may be several numbers, say those of the run and of the worker.
        """
        self.inputs, self.targets = inputs, _typed(targets)
        self.indices: Indices = np.asarray(indices, dtype=np.intp)
        self.size = batch
        self.prepare = prepare
        self._seed = tuple(np.atleast_1d(seed).tolist())
        self._last: tuple[int, Indices] = (-1, self.indices)
        if batch < 1:
            raise ConfigError(f"A batch must hold at least 1 sample, got {batch}.")
        if any(part < 0 for part in self._seed):
            raise ConfigError(f"A seed must not be negative, got {seed}.")
        self._require_share()

    @classmethod
    def of(
        cls,
        data: LearningData,
        indices: Any,
        *,
        batch: int,
        seed: int | Sequence[int],
        split: Split = "train",
    ) -> Batches:
        """Batches of some samples of a data set, prepared as it says."""
        return cls(data.inputs(split), data.targets(split), indices, batch, seed, data.prepare)

    def batch(self, step: int) -> tuple[Any, Any]:
        """Inputs and targets of this step: of images, (batch, channels, height, width) float32
        and (batch,) int64."""
        picked = self.picked(step)
        return self.prepare(self.inputs[picked]), self.targets[picked]

    def picked(self, step: int) -> Indices:
        """(batch,) the samples of this step."""
        if step < 0:
            raise InputError(f"Steps count from 0, got {step}.")
        start, stop = step * self.size, (step + 1) * self.size
        count = len(self.indices)
        parts = [
            self._epoch(epoch)[max(0, start - epoch * count) : stop - epoch * count]
            for epoch in range(start // count, (stop - 1) // count + 1)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _epoch(self, epoch: int) -> Indices:
        """This worker's samples in the order of that epoch."""
        last, order = self._last
        if last != epoch:
            order = np.random.default_rng((*self._seed, epoch)).permutation(self.indices)
            order.flags.writeable = False  # batches are views of it
            self._last = (epoch, order)
        return order

    def _require_share(self) -> None:
        count = len(self.targets)
        if len(self.inputs) != count:
            raise InputError(f"{len(self.inputs)} inputs but {count} targets.")
        if self.indices.ndim != 1 or not len(self.indices):
            raise InputError("A worker needs at least one sample, got none.")
        low, high = self.indices.min(), self.indices.max()
        if low < 0 or high >= count:
            raise InputError(f"Indices run from {low} to {high}, not within 0..{count - 1}.")


def _typed(targets: Any) -> Any:
    """Floats as they are, anything else as numbers of classes."""
    given = np.asarray(targets)
    return given if given.dtype.kind == "f" else given.astype(np.int64, copy=False)


class EvaluationBatches(Sequence[tuple[Any, Any]]):
    """Samples to test on, so many at a time.

    Each piece is made when its turn comes: the test set of CIFAR-10 as floats has 123 MB, which
    every server held, as much as 17 models of CifarNet.
    """

    def __init__(self, data: LearningData, indices: Any, size: int) -> None:
        self._data, self._size = data, size
        self._indices: Indices = np.asarray(indices, dtype=np.intp)
        self._targets = data.targets("test")[self._indices]

    def __len__(self) -> int:
        return -(-len(self._indices) // self._size)

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(f"There are {len(self)} pieces, got {number}.")
        part = slice(number * self._size, (number + 1) * self._size)
        stored = self._data.inputs("test")[self._indices[part]]
        return self._data.prepare(stored), self._targets[part]
