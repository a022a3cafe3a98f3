"""A job: what its user asked for, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.core.errors import ConfigError, UnknownName
from garfield.elastic.policy.learning_rate import LEARNING_RATES
from garfield.elastic.policy.measurement import Measurement, with_freshest


@dataclass(frozen=True)
class JobRequest:
    """What a user asks for. The defaults are those of the thesis, 4.5.1."""

    min_workers: Annotated[int, Within(1)] = 1
    """Workers below which the job does not run."""
    start_workers: Annotated[int, Within(1)] = 2
    """Workers that it starts with, if that many GPUs are idle."""
    max_workers: Annotated[int, Within(1)] = 16
    """Workers beyond which it is not scaled."""
    batch: Annotated[int, Within(1)] = 64
    """Samples of a worker at a time; never fewer."""
    max_batch: Annotated[int | None, Within(1)] = None
    """The most samples of a worker at a time. (as many as memory holds)"""
    max_global_batch: Annotated[int | None, Within(1)] = None
    """The most samples of all workers together; it limits workers too. (no limit)"""
    scale_batch: bool = True
    """Whether the batch size may be scaled."""
    fixed_global_batch: Annotated[int | None, Within(1)] = None
    """Samples of a step, whatever the number of workers: kept by accumulating gradients."""
    powers_of_two: bool = False
    """Whether workers and batch sizes must be powers of two."""
    learning_rate: str = "linear"
    """How the learning rate follows the global batch: none, linear, sqrt or adascale."""
    team: str = ""
    """Whose job it is, where teams have guarantees."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.min_workers <= self.start_workers <= self.max_workers:
            raise ConfigError(
                "Workers must be min ≤ start ≤ max, got "
                f"{self.min_workers}, {self.start_workers} and {self.max_workers}."
            )
        if self.max_batch is not None and self.max_batch < self.batch:
            raise ConfigError(f"max-batch {self.max_batch} is below batch {self.batch}. Raise it.")
        if self.learning_rate not in LEARNING_RATES:
            raise UnknownName("a rule for the learning rate", self.learning_rate, LEARNING_RATES)
        if self.powers_of_two and self.min_workers & (self.min_workers - 1):
            raise ConfigError(
                f"powers-of-two and min-workers {self.min_workers} cannot both hold. Make it a "
                "power of two."
            )
        self._check_global()

    def _check_global(self) -> None:
        least = self.min_workers * self.batch
        if self.max_global_batch is not None and self.max_global_batch < least:
            raise ConfigError(
                f"max-global-batch {self.max_global_batch} is below {least}, which "
                f"{self.min_workers} workers with a batch of {self.batch} train on. Raise it, or "
                "lower one of these."
            )
        if self.fixed_global_batch is not None and self.fixed_global_batch < self.min_workers:
            raise ConfigError(
                f"fixed-global-batch {self.fixed_global_batch} leaves some of {self.min_workers} "
                "workers without a sample. Raise it, or lower min-workers."
            )


@dataclass(frozen=True)
class Job:
    """What is known of a job when a decision is taken: nothing of how long it will train."""

    name: str
    request: JobRequest
    arrival: int
    """Its place in the order of arrival; the first is 0."""
    workers: int = 0
    """Workers that it has; 0 while it waits."""
    batch: int = 0
    """Samples of each worker at a time; the requested batch if it is left out."""
    measurements: tuple[Measurement, ...] = ()
    """What it reported, the freshest of each size."""
    rescalings: int = 0
    """How often its number of workers was changed: s_j of the thesis."""
    rounds: int = 0
    """Decisions taken since it arrived: s."""
    oom_batch: int | None = None
    """The smallest batch of a worker that ran out of memory, if one did."""
    suspended: bool = False
    """It ran before, and waits at the head of the queue."""
    nodes: tuple[str, ...] = ()
    """Where its workers are, one name each. No policy of ours looks at it yet."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            object.__setattr__(self, "batch", self.request.batch)

    @property
    def is_measured(self) -> bool:
        """Whether it has reported anything at all."""
        return bool(self.measurements)

    @property
    def latest(self) -> Measurement | None:
        """What it reported at the size that it has now."""
        now = (self.workers, self.batch)
        return next((each for each in self.measurements if each.size == now), None)

    @property
    def most_workers(self) -> int:
        """Workers that it may have at most in the next round.

        One that was never measured gets no more than it asked to start with, or has.
        """
        bound = self.request.max_workers
        if self.request.max_global_batch is not None:
            bound = min(bound, self.request.max_global_batch // self.batch)
        if self.request.fixed_global_batch is not None:
            bound = min(bound, self.request.fixed_global_batch)
        if not self.is_measured:
            bound = min(bound, max(self.request.start_workers, self.workers))
        return max(bound, self.request.min_workers)

    def measured(self, new: Measurement) -> Job:
        """The same job with one more measurement."""
        return replace(self, measurements=with_freshest(self.measurements, new))

    def out_of_memory(self, batch: int) -> Job:
        """The same job after a worker's batch did not fit: for good, no later one is as large."""
        return replace(self, oom_batch=min(batch, self.oom_batch or batch))

    def given(self, workers: int, batch: int) -> Job:
        """The same job with these workers and this batch size. A start is no rescaling."""
        is_rescaled = self.workers > 0 and workers not in (0, self.workers)
        return replace(
            self,
            workers=workers,
            batch=batch,
            rescalings=self.rescalings + is_rescaled,
            suspended=workers == 0 and (self.suspended or self.workers > 0),
            nodes=self.nodes if workers == self.workers else (),
        )

    def after_round(self) -> Job:
        """The same job with one more round counted."""
        return replace(self, rounds=self.rounds + 1)
