"""From micro-batches, as indices, to batches of a data set: torch's DataLoader, told what to load.

A loader lives until the workers or the batch size change; what it has read ahead is then dropped,
and read by whoever it belongs to now. `loader` holds options of DataLoader, `num_workers` say.

A loader that begins draws a number for its own processes. It does so from a generator of the place
that it begins at: the script's own would be elsewhere after a change of workers than without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from torch.utils.data import DataLoader, Dataset

from garfield.elastic.job.cursor import MicroBatch
from garfield.elastic.job.random_numbers import generator_at

Place: TypeAlias = tuple[int, ...]


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
    data: Dataset[Any], parts: Iterable[MicroBatch], loader: Mapping[str, Any], place: Place
) -> Iterator[tuple[MicroBatch, Any]]:
    """Each micro-batch with its samples; `place` is where the first of them is."""
    told = _Told(parts)
    options = {"generator": generator_at(*place), **loader}
    for batch in DataLoader(data, batch_sampler=told, **options):
        yield told.asked.popleft(), batch
