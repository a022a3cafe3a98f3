"""Which samples a step trains on: a pure function of a place in the data and of who is there.

An epoch visits all samples in one order, drawn from (seed, epoch). A place in it is the number of
samples that all workers together have used, and nothing else: whoever goes on from there, with
whatever number of workers and whatever batch, uses every further sample once.

A step takes the next samples in that order, `workers * batch` of them or a fixed number, and gives
each worker a run of (almost) equal length. A run longer than `batch` is cut into several
micro-batches, whose gradients are accumulated. The last step of an epoch takes what is left.

Shares may differ by a sample, so each micro-batch has a weight: with it, the average over workers
of their accumulated gradients is that of the mean loss over the whole step. A worker for which
nothing is left gets one sample of the step with weight 0, as it takes part in the exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ConfigError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Division:
    """How a step's samples are divided, and which part of them is one worker's."""

    rank: int
    workers: int
    batch: int
    """The most samples of a micro-batch."""
    fixed_step: int | None = None
    """Samples of a step over all workers, if their number must not change with the workers'."""

    @property
    def step(self) -> int:
        """Samples of a full step, over all workers."""
        return self.fixed_step or self.workers * self.batch


@dataclass(frozen=True)
class MicroBatch:
    """What one worker computes one gradient of."""

    indices: tuple[int, ...]
    """Samples of the data set."""
    weight: float
    """What the mean loss over them is to be multiplied with; 0 for a filler."""
    advance: int
    """Samples that the step has used once this micro-batch is done; 0 unless it is the last."""

    @property
    def is_last(self) -> bool:
        """Whether the step ends with it."""
        return self.advance > 0


@dataclass(frozen=True)
class Cursor:
    """A place in the data. The same on all workers, and part of what a checkpoint holds."""

    samples: int
    """Of the data set."""
    seed: int = 0
    epoch: int = 0
    used: int = 0
    """Samples of this epoch that were trained on, by all workers together."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError("The data set is empty: there is nothing to train on.")
        if not 0 <= self.used < self.samples:
            raise ConfigError(f"{self.used} is no place in an epoch of {self.samples} samples.")

    def after(self, count: int) -> Cursor:
        """The place when so many more samples of this epoch have been used."""
        used = self.used + count
        if used == self.samples:
            return replace(self, epoch=self.epoch + 1, used=0)
        return replace(self, used=used)

    def micro_batches(self, division: Division) -> Iterator[MicroBatch]:
        """What one worker does from here to the end of the epoch, if nothing changes."""
        place: Cursor | None = self
        while place is not None and place.epoch == self.epoch:
            yield from place.step(division)
            place = place.after(min(division.step, self.samples - place.used))

    def step(self, division: Division) -> list[MicroBatch]:
        """What one worker does in the next step."""
        count = min(division.step, self.samples - self.used)
        order = _order(self.samples, self.seed, self.epoch)[self.used : self.used + count]
        share = order[_run(count, division.rank, division.workers)]
        if not len(share):
            return [MicroBatch((int(order[0]),), 0.0, count)]
        pieces = -(-len(share) // division.batch)
        scale = division.workers / count
        cut = [share[_run(len(share), piece, pieces)] for piece in range(pieces)]
        return [
            MicroBatch(
                tuple(piece.tolist()), len(piece) * scale, count if number == pieces - 1 else 0
            )
            for number, piece in enumerate(cut)
        ]

    def state_dict(self) -> dict[str, int]:
        return {
            "samples": self.samples,
            "seed": self.seed,
            "epoch": self.epoch,
            "used": self.used,
        }

    def moved_to(self, state: Mapping[str, int]) -> Cursor:
        """The place that a state tells; ConfigError if it is one in other data."""
        if state["samples"] != self.samples:
            raise ConfigError(
                f"The training to go on with has {state['samples']} samples an epoch, the data "
                f"set here {self.samples}. Give all workers the same data set."
            )
        return Cursor(self.samples, state["seed"], state["epoch"], state["used"])


def _run(count: int, part: int, parts: int) -> slice:
    """Of `count` things, the part-th of `parts` runs of (almost) equal length."""
    return slice(count * part // parts, count * (part + 1) // parts)


@lru_cache(maxsize=2)  # this epoch's, and the next one's while a loader reads ahead
def _order(samples: int, seed: int, epoch: int) -> Indices:
    return np.random.default_rng((seed, epoch)).permutation(samples)
