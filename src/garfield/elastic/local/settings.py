"""The settings of a local cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.elastic.control.garbage import RETRIES
from garfield.elastic.control.periods import Periods
from garfield.elastic.control.reports import WorkerCapacity
from garfield.elastic.policy.guaranteed import check_guarantees, read_guarantees
from garfield.elastic.policy.policy import parse


@dataclass(frozen=True)
class LocalSettings:
    """All settings of `garfield elastic up`."""

    slots: Annotated[int, Within(1)] = 4
    """Workers that run at a time, over all jobs."""
    policy: str = "era"
    """Who gets how many: era, era-marginal, static, autoscaler, afs-p, or one of your own."""
    guarantees: str | None = None
    """Slots that teams are guaranteed: vision:2,speech:1. Others borrow what is not used."""
    dry_run: bool = False
    """Whether decisions are only recorded: no job starts, and none is rescaled."""
    slot_cpus: Annotated[float | None, Within(0, above=True)] = None
    """Cores of a slot. (its share of the machine's, at most 1)"""
    slot_memory_mb: Annotated[float | None, Within(0, above=True)] = None
    """Memory of a slot: batches beyond it fail, and are halved. (no limit: batches stay)"""
    retries: Annotated[int, Within(0)] = RETRIES
    """How often a job that fails without coming any farther is started again."""
    grace_s: Annotated[float, Within(0, above=True)] = 30.0
    """How long a worker that must go may take, before it is killed."""
    periods: Periods = field(default_factory=Periods)

    def __post_init__(self) -> None:
        check_numbers(self)
        check_guarantees(read_guarantees(self.guarantees or ""), self.slots)
        parse(self.policy_text)

    @property
    def policy_text(self) -> str:
        """The policy as decisions are recorded with it, guarantees included."""
        if not self.guarantees:
            return self.policy
        return f"guaranteed(policy={self.policy!r}, teams={self.guarantees!r})"

    @property
    def cpus(self) -> float:
        """Cores of a slot."""
        return self.slot_cpus or min(1.0, len(os.sched_getaffinity(0)) / self.slots)

    @property
    def threads(self) -> int:
        """Threads that a worker computes with."""
        return max(1, round(self.cpus))

    @property
    def memory_bytes(self) -> int | None:
        """Memory of a slot."""
        return None if self.slot_memory_mb is None else int(self.slot_memory_mb * 2**20)

    @property
    def capacity(self) -> WorkerCapacity:
        """What a worker may use, as its reports are read."""
        return WorkerCapacity(self.cpus / self.threads, self.memory_bytes)
