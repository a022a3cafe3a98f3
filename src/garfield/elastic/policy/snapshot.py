"""The cluster at one moment, as far as it was reported: all that a policy may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from garfield.core.errors import InputError
from garfield.elastic.policy.jobs import Job


@dataclass(frozen=True)
class Node:
    """A machine, and its GPUs that jobs may have."""

    name: str
    gpus: int
    kind: str = ""
    """Which GPUs. No policy of ours looks at it yet."""


@dataclass(frozen=True)
class Snapshot:
    """GPUs, and jobs that run or wait."""

    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """In any order: `arrival` says who came first."""
    at_s: float = 0.0
    """When, since whoever took it began."""

    def __post_init__(self) -> None:
        if any(node.gpus < 0 for node in self.nodes):
            raise InputError("A node cannot have fewer than 0 GPUs.")
        for what in ("name", "arrival"):
            if len({getattr(job, what) for job in self.jobs}) < len(self.jobs):
                raise InputError(f"Two jobs of a snapshot have the same {what}.")

    @cached_property
    def gpus(self) -> int:
        """GPUs that there are."""
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def running(self) -> tuple[Job, ...]:
        """Jobs that have workers, by arrival."""
        return tuple(sorted((j for j in self.jobs if j.workers), key=lambda job: job.arrival))

    @cached_property
    def waiting(self) -> tuple[Job, ...]:
        """Jobs that have none: those that were suspended first, then by arrival."""
        found = (job for job in self.jobs if not job.workers)
        return tuple(sorted(found, key=lambda job: (not job.suspended, job.arrival)))

    @cached_property
    def idle(self) -> int:
        """GPUs that nobody has; negative if some were lost that jobs still count on."""
        return self.gpus - sum(job.workers for job in self.running)


def on_one_node(gpus: int, jobs: tuple[Job, ...] = (), at_s: float = 0.0) -> Snapshot:
    """A snapshot of a cluster of which only the number of GPUs matters."""
    return Snapshot((Node("node-0", gpus),), jobs, at_s)
