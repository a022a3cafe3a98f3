"""From micro-batches, as indices, to batches of a data set: torch's DataLoader, told what to load.

A loader lives until the workers or the batch size change; what it has read ahead is then dropped,
and read by whoever it belongs to now. `loader` holds options of DataLoader, `num_workers` say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset

from garfield.elastic.job.cursor import MicroBatch


class _Told:
    """Gives DataLoader the indices, and remembers which micro-batches it has asked for."""

    def __init__(self, parts: Iterable[MicroBatch]) -> None:
        self._parts = parts
        self.asked: deque[MicroBatch] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for part in self._parts:
            self.asked.append(part)
            yield list(part.indices)


def loaded(
    data: Dataset[Any], parts: Iterable[MicroBatch], loader: Mapping[str, Any]
) -> Iterator[tuple[MicroBatch, Any]]:
    """Each micro-batch with its samples."""
    told = _Told(parts)
    for batch in DataLoader(data, batch_sampler=told, **loader):
        yield told.asked.popleft(), batch
