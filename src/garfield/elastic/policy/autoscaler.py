"""Autoscaler: more workers while throughput rises, one job at a time.

Or et al., "Resource Elasticity in Distributed Deep Learning", MLSys 2020, as the thesis uses it
(4.5.2):

-   a job that was measured at its size gets `step` more workers, as far as GPUs are idle, unless
    the next larger size that was measured was not faster;
-   it loses `step` if it is slower than at the next smaller size that was measured;
-   it loses none for the sake of waiting jobs, which start when enough GPUs are idle.

Older jobs grow first. Batch sizes stay.
"""

from __future__ import annotations

from typing import Annotated

from garfield.core.bounds import Within
from garfield.elastic.policy.admission import fitting, startable
from garfield.elastic.policy.batch_size import kept_shares
from garfield.elastic.policy.decision import Decision
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import Policy, policy
from garfield.elastic.policy.powers_of_two import rounded
from garfield.elastic.policy.snapshot import Snapshot


@policy("autoscaler")
class Autoscaler(Policy):
    """Four more workers while throughput rises, four fewer when it fell."""

    def __init__(self, *, step: Annotated[int, Within(1)] = 4) -> None:
        """`step` is how many workers a job wins or loses at a time."""
        self.step = step

    def decide(self, snapshot: Snapshot) -> Decision:
        """Start who fits, then let running jobs try more."""
        running, suspended = fitting(snapshot, lambda job: job.request.min_workers)
        if suspended or snapshot.idle < 0:
            return kept_shares(snapshot, _shrunk(running, snapshot.gpus))
        workers = {job.name: job.workers for job in running} | startable(snapshot, least=True)
        idle = snapshot.gpus - sum(workers.values())
        for job in running:
            change = min(self._wanted(job) - job.workers, idle)
            workers[job.name] += change
            idle -= change
        return kept_shares(snapshot, rounded(running, workers, snapshot.gpus))

    def _wanted(self, job: Job) -> int:
        """Workers that this job would have for itself alone."""
        now = job.latest
        if now is None:
            return job.workers
        speeds = {each.workers: each.throughput for each in job.measurements}
        smaller = [n for n in speeds if n < job.workers]
        larger = [n for n in speeds if n > job.workers]
        if smaller and now.throughput < speeds[max(smaller)]:
            return max(job.workers - self.step, job.request.min_workers)
        if larger and speeds[min(larger)] <= now.throughput:
            return job.workers
        return max(job.workers, min(job.workers + self.step, job.most_workers))


def _shrunk(running: tuple[Job, ...], gpus: int) -> dict[str, int]:
    """Workers after GPUs were lost: the latest arrivals give up first, down to the minimum."""
    workers = {job.name: job.workers for job in running}
    over = sum(workers.values()) - gpus
    for job in reversed(running):
        less = min(max(over, 0), job.workers - job.request.min_workers)
        workers[job.name] -= less
        over -= less
    return workers
