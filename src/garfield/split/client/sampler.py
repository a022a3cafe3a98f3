"""The order in which samples are trained on: a pure function of (seed, epoch).

An epoch visits the objects in a shuffled order, and the samples of each in a shuffled order
of its own. Batch b is the b-th run of `batch` samples of that order, so a batch may hold part
of an object or many of them, and every sample comes once. Of each batch, rank r of R takes
the r-th of R runs of (almost) equal length: whatever R is, the batches are the same.

A place in that order is (epoch, samples already trained on by all ranks together): two numbers,
from which any number of ranks goes on, with any split and any number of requests at once.

`shares` says what a rank trains on, batch by batch. `requests` says what it must ask for, one
request per visit of an object, in the same order; the loader in between cuts the answers into
batches. Costs O(samples) a request's object, never O(data set), beyond one permutation of the
objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ConfigError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where a training is: so many samples into that epoch, over all ranks."""

    epoch: int = 0
    samples: int = 0


@dataclass(frozen=True)
class Piece:
    """Samples of one object, in the order in which they are trained on."""

    object: int
    """Which object, as the index lists them."""
    indices: tuple[int, ...]
    """Which samples of it."""

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Share:
    """What one rank trains on of one batch."""

    number: int
    """Which batch of the epoch."""
    pieces: tuple[Piece, ...]
    batch: int
    """Samples of the whole batch, over all ranks; the last of an epoch may be smaller."""
    end: Place
    """Where the training is once this batch is done."""

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True)
class Sampler:
    """The batches of every epoch, for one rank of `ranks`."""

    counts: tuple[int, ...]
    """Samples in each object."""
    batch: int
    """Samples in a batch, over all ranks."""
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller than the others."""

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1:
            raise ConfigError(
                f"Every object must hold at least one sample; of {len(self.counts)} objects the "
                f"smallest holds {min(self.counts, default=0)}."
            )
        if not 0 <= self.rank < self.ranks:
            raise ConfigError(f"rank must be within 0..{self.ranks - 1}, got {self.rank}.")
        if self.batch < self.ranks:
            raise ConfigError(
                f"batch must be at least the number of ranks, {self.ranks}, got {self.batch}."
            )
        if self.drop_last and self.total < self.batch:
            raise ConfigError(
                f"A batch of {self.batch} cannot be filled: the data hold {self.total} samples. "
                "Take a smaller batch, or keep the last one."
            )

    @cached_property
    def total(self) -> int:
        """Samples in the data set."""
        return sum(self.counts)

    @property
    def trained(self) -> int:
        """Samples that an epoch trains on, over all ranks."""
        return self.total - self.total % self.batch if self.drop_last else self.total

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return -(-self.trained // self.batch)

    def shares(self, start: Place) -> Iterator[Share]:
        """What this rank trains on from there to the end of the epoch, batch by batch."""
        walk = _Walk(self.counts, self.seed, start.epoch)
        for begin in range(start.samples, self.trained, self.batch):
            size = min(self.batch, self.trained - begin)
            low = begin + size * self.rank // self.ranks
            high = begin + size * (self.rank + 1) // self.ranks
            yield Share(
                number=begin // self.batch,
                pieces=tuple(walk.pieces(low, high)),
                batch=size,
                end=self._after(Place(start.epoch, begin + size)),
            )

    def requests(self, start: Place) -> Iterator[Piece]:
        """What this rank must ask for, in order: its pieces, joined where an object goes on."""
        pieces = (piece for share in self.shares(start) for piece in share.pieces)
        for number, visit in groupby(pieces, attrgetter("object")):
            yield Piece(number, tuple(index for piece in visit for index in piece.indices))

    def _after(self, place: Place) -> Place:
        return Place(place.epoch + 1) if place.samples >= self.trained else place


class _Walk:
    """The order of one epoch, of which runs are asked for from front to back."""

    def __init__(self, counts: Sequence[int], seed: int, epoch: int) -> None:
        self._counts = counts
        self._key = (seed, epoch)
        self._objects = _shuffled(len(counts), seed, epoch)
        sizes = np.asarray(counts, np.int64)[self._objects]
        self._ends = np.cumsum(sizes)

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """The samples at places low..high of the order, object by object."""
        at = int(np.searchsorted(self._ends, low, side="right"))
        while low < high:
            number, end = int(self._objects[at]), int(self._ends[at])
            count = self._counts[number]
            inside = low - (end - count)
            taken = min(high, end) - low
            order = _shuffled(count, *self._key, number)
            yield Piece(number, tuple(order[inside : inside + taken].tolist()))
            low, at = low + taken, at + 1


@lru_cache(maxsize=64)
def _shuffled(count: int, *key: int) -> Indices:
    """A permutation of 0..count, drawn from the key alone.

    Sorting raw numbers of a bit generator, which numpy promises never to change; the
    permutations of its Generator it does not.
    """
    bits = np.random.PCG64(np.random.SeedSequence(key))
    order = np.argsort(bits.random_raw(count), kind="stable")
    order.setflags(write=False)
    return order
