"""What a job reported about itself, and which of its reports are kept.

Every worker reports the throughput of the whole job as it sees it, and the use of its own GPU.
Reports of one moment are averaged over workers (thesis, 4.3.2); of all moments, the freshest of
each number of workers and batch size is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from garfield.core.errors import InputError


@dataclass(frozen=True)
class Measurement:
    """One report, or the mean of all workers' reports of one moment."""

    workers: int
    """How many workers trained when it was taken."""
    batch: int
    """Samples that each of them took at a time."""
    throughput: float
    """Samples that the whole job trained on in a second."""
    compute: float | None = None
    """The part of its time that a GPU computed, within [0, 1]. None where nobody measured it."""
    memory: float | None = None
    """The part of its memory that was in use, within [0, 1]."""
    at_s: float = 0.0
    """When, by the clock of whoever takes snapshots."""
    noise_scale: float | None = None
    """Variance of a sample's gradient over the squared norm of the mean one, in samples."""

    def __post_init__(self) -> None:
        if self.workers < 1 or self.batch < 1 or not self.throughput > 0:
            raise InputError(
                "A measurement must have workers ≥ 1, batch ≥ 1 and throughput > 0, got "
                f"{self.workers}, {self.batch} and {self.throughput}."
            )

    @property
    def size(self) -> tuple[int, int]:
        """Workers and batch size."""
        return self.workers, self.batch

    @property
    def step_s(self) -> float:
        """Seconds of one step."""
        return self.workers * self.batch / self.throughput


def averaged(reports: Sequence[Measurement]) -> Measurement:
    """One measurement of what all workers reported at the same size; InputError if sizes differ."""
    if len({each.size for each in reports}) != 1:
        raise InputError(
            f"{len(reports)} reports of {len({each.size for each in reports})} sizes cannot be "
            "averaged. Average those of one number of workers and one batch size."
        )
    first = reports[0]
    return Measurement(
        first.workers,
        first.batch,
        sum(each.throughput for each in reports) / len(reports),
        _mean(each.compute for each in reports),
        _mean(each.memory for each in reports),
        max(each.at_s for each in reports),
        _mean(each.noise_scale for each in reports),
    )


def with_freshest(kept: tuple[Measurement, ...], new: Measurement) -> tuple[Measurement, ...]:
    """The kept ones and the new one, which takes the place of one of its size; oldest first."""
    same = [each for each in kept if each.size == new.size]
    if any(each.at_s > new.at_s for each in same):
        return kept
    return (*(each for each in kept if each.size != new.size), new)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
