"""What is kept of a job from its submission to its end.

A record is immutable, and JSON of it (`core/files.as_json`) is read back by `record_of`: so what
jobs have told, how often they were rescaled and which batches did not fit outlive whoever keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from garfield.core.errors import ConfigError, InputError
from garfield.elastic.policy.admission import check_fits
from garfield.elastic.policy.decision import Share
from garfield.elastic.policy.decision_log import job_of, recorded_as
from garfield.elastic.policy.jobs import Job, JobRequest


class Phase(str, Enum):
    """Where a job is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """It has run, and waits for workers again."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDINGS = frozenset({Phase.FINISHED, Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True)
class JobRecord:
    """One job, as of the last change."""

    job: Job
    """What policies see of it."""
    submitted_s: float = 0.0
    started_s: float | None = None
    """When it first got workers."""
    since_s: float = 0.0
    """When it last began to run, to wait, or ended."""
    waited_s: float = 0.0
    """Seconds without workers, until `since_s`."""
    ending: Phase | None = None
    """How it ended, once it has."""
    farthest_step: int = 0
    """The last step of its training that any worker has told."""
    started_at_step: int = 0
    """The farthest step when it last got workers."""
    fruitless_starts: int = 0
    """Starts in a row after which it failed without coming farther than before."""
    why: str = ""
    """What happened last, for people."""

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def phase(self) -> Phase:
        """Where it is in its life."""
        if self.ending is not None:
            return self.ending
        if self.job.workers:
            return Phase.RUNNING
        return Phase.SUSPENDED if self.job.suspended else Phase.WAITING

    @property
    def is_active(self) -> bool:
        """Whether it runs, or waits to."""
        return self.ending is None

    def queueing_s(self, at_s: float) -> float:
        """Seconds that it was without workers, until then or its end."""
        waits = self.is_active and not self.job.workers
        return self.waited_s + (at_s - self.since_s if waits else 0.0)

    def completion_s(self) -> float | None:
        """Seconds from its submission to its end; None before."""
        return None if self.ending is None else self.since_s - self.submitted_s

    def given(self, share: Share, at_s: float) -> JobRecord:
        """The same job with a share of the cluster."""
        job = self.job.given(share.workers, share.batch)
        changes = (job.workers, job.batch) != (self.job.workers, self.job.batch)
        why = share.reason if changes or not self.why else self.why
        if bool(job.workers) == bool(self.job.workers):
            return replace(self, job=job, why=why)
        waited_s = self.queueing_s(at_s)
        changed = replace(self, job=job, why=why, since_s=at_s, waited_s=waited_s)
        if not job.workers:
            return changed
        started_s = at_s if self.started_s is None else self.started_s
        return replace(changed, started_s=started_s, started_at_step=self.farthest_step)

    def ended(self, ending: Phase, at_s: float, why: str = "") -> JobRecord:
        """The same job at its end, without workers."""
        assert ending in ENDINGS
        return replace(
            self,
            job=replace(self.job.given(0, self.job.batch), suspended=False),
            waited_s=self.queueing_s(at_s),
            since_s=at_s,
            ending=ending,
            why=why or self.why,
        )

    def at_step(self, step: int) -> JobRecord:
        """The same job once a worker has told its step."""
        return self if step <= self.farthest_step else replace(self, farthest_step=step)


def submitted(
    name: str, request: JobRequest, others: Iterable[JobRecord], gpus: int, at_s: float
) -> JobRecord:
    """A new job at the end of the queue; ConfigError for one that could never run here."""
    check_fits(name, request, gpus)
    known = list(others)
    if any(each.name == name and each.is_active for each in known):
        raise ConfigError(f"There is a job named {name} already. Choose another name.")
    arrival = 1 + max((each.job.arrival for each in known), default=-1)
    return JobRecord(Job(name, request, arrival), submitted_s=at_s, since_s=at_s)


def record_of(told: Mapping[str, Any]) -> JobRecord:
    """The record that JSON holds; InputError if it holds none."""
    return recorded_as(JobRecord, told, job=job_of, ending=_ending)


def _ending(told: Any) -> Phase | None:
    if told is None:
        return None
    if told not in [ending.value for ending in ENDINGS]:
        raise InputError(f"A recorded job cannot have ended as {told!r}.")
    return Phase(told)
