"""Static: no elasticity. First come, first served; a job keeps the workers that it started with.

The status quo that chapter 4 of the thesis compares with (4.5.2). With `batch` the batch size
alone is scaled, as ERA does it: what the second dimension is worth without the first.
"""

from __future__ import annotations

from garfield.elastic.policy.admission import fitting, startable
from garfield.elastic.policy.batch_size import Thresholds, kept_shares, scaled_batch, share
from garfield.elastic.policy.decision import Decision
from garfield.elastic.policy.policy import Policy, policy
from garfield.elastic.policy.snapshot import Snapshot


@policy("static")
class Static(Policy):
    """First come, first served, with the starting workers for good."""

    def __init__(self, *, batch: bool = False) -> None:
        """`batch` says whether batches are scaled."""
        self.scales_batch = batch

    def decide(self, snapshot: Snapshot) -> Decision:
        """Start who fits; if GPUs were lost, suspend the latest arrivals."""
        running, suspended = fitting(snapshot, lambda job: job.workers)
        workers = {job.name: job.workers for job in running}
        if not suspended:
            workers |= startable(snapshot)
        decision = kept_shares(snapshot, workers)
        if not self.scales_batch:
            return decision
        scaled = {
            job.name: share(job, job.workers, scaled_batch(job, job.workers, Thresholds()))
            for job in running
        }
        return Decision({**decision.shares, **scaled})
