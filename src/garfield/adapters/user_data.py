"""What a user trains and tests with, as batches: a loader, a dataset, or plain arrays.

A DataLoader, a tf.data.Dataset or any other iterable of batches is begun again when
it ends. A pair of arrays (inputs, targets) is cut into batches of 32, in an order that
every epoch draws afresh. Anything whose batch is a function of the step stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from garfield.adapters.contract import Batch
from garfield.core.errors import InputError

BATCH = 32  # what Keras' fit takes, if not told otherwise
TESTED_AT_ONCE = 500


@runtime_checkable
class BatchesByStep(Protocol):
    """Data whose batch is a function of the step: a step computed again is the same."""

    def batch(self, step: int) -> Batch: ...


def training_batches(data: Any) -> BatchesByStep:
    """Batches without end, to train on."""
    if _is_pair(data):
        return _Shuffled(*_matching(data))
    if isinstance(data, BatchesByStep) and not _is_dataset(data):
        return data
    return _Endless(data)


def evaluation_batches(data: Any) -> Iterable[Batch]:
    """Batches to test on: to go through once, as often as wanted."""
    if not _is_pair(data):
        batches: Iterable[Batch] = data
        return batches
    inputs, targets = _matching(data)
    cuts = range(0, len(targets), TESTED_AT_ONCE)
    return [(inputs[at : at + TESTED_AT_ONCE], targets[at : at + TESTED_AT_ONCE]) for at in cuts]


def share(data: Any, rank: int, n: int) -> Any:
    """One of n parts, equally long, of an array, a tensor or a data set of either framework."""
    length = len(data) // n
    if not length:
        raise InputError(f"{len(data)} samples are too few for {n} peers.")
    if _is_dataset(data):
        return data.shard(n, rank).take(length)
    picked = range(rank, n * length, n)
    if hasattr(data, "shape"):
        return data[picked.start : picked.stop : picked.step]
    from torch.utils.data import Subset

    return Subset(data, picked)


class _Endless:
    """A loader, begun again whenever it ends."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches
        self._at: Iterator[Batch] | None = None

    def batch(self, step: int) -> Batch:
        if self._at is not None:
            found = next(self._at, None)
            if found is not None:
                return found
        self._at = iter(self._batches)
        return next(self._at)


class _Shuffled:
    """Arrays, cut into batches; the last of an epoch may be smaller."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self._inputs, self._targets = inputs, targets
        self._turns = -(-len(targets) // BATCH)
        self._epoch, self._order = -1, np.arange(len(targets))

    def batch(self, step: int) -> Batch:
        epoch, turn = divmod(step, self._turns)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng(epoch).permutation(len(self._targets))
        picked = self._order[turn * BATCH : (turn + 1) * BATCH]
        return self._inputs[picked], self._targets[picked]


def _is_dataset(data: Any) -> bool:
    """A tf.data.Dataset, whose method `batch` means something else."""
    return any(cls.__module__.startswith("tensorflow.") for cls in type(data).__mro__)


def _is_pair(data: Any) -> TypeGuard[Sequence[Any]]:
    """Inputs and targets, and not two batches of them."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    return all(hasattr(part, "shape") and hasattr(part, "dtype") for part in data)


def _matching(pair: Sequence[Any]) -> tuple[Any, Any]:
    inputs, targets = (np.asarray(part) for part in pair)
    if len(inputs) != len(targets) or not len(targets):
        raise InputError(f"{len(inputs)} inputs but {len(targets)} targets.")
    return inputs, targets
