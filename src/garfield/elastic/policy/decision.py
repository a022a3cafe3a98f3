"""What a policy decided: a share of the cluster for every job of the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from garfield.elastic.policy.jobs import Job


class Change(str, Enum):
    """What happens to a job's workers."""

    STARTS = "starts"
    GROWS = "grows"
    SHRINKS = "shrinks"
    KEEPS = "keeps"
    WAITS = "waits"
    SUSPENDED = "suspended"


@dataclass(frozen=True)
class Share:
    """What one job gets."""

    workers: int
    """0 while it waits, or if it is suspended."""
    batch: int
    """Samples of each worker at a time."""
    accumulation: int = 1
    """Batches whose gradients are added up before a step."""
    learning_rate: float = 1.0
    """The factor of the learning rate that the user chose."""
    reason: str = ""
    """Why, for people."""

    def change(self, job: Job) -> Change:
        """What it changes for a job."""
        if not self.workers:
            return Change.SUSPENDED if job.workers else Change.WAITS
        if not job.workers:
            return Change.STARTS
        if self.workers == job.workers:
            return Change.KEEPS
        return Change.GROWS if self.workers > job.workers else Change.SHRINKS


@dataclass(frozen=True)
class Decision:
    """A share for every job of the snapshot, by its name."""

    shares: Mapping[str, Share]

    @property
    def gpus(self) -> int:
        """GPUs that are given away."""
        return sum(share.workers for share in self.shares.values())

    def __getitem__(self, name: str) -> Share:
        return self.shares[name]
