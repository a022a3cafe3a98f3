"""What policies that share out all GPUs have in common: who enters, the filling, the batches.

Such a policy says what each worker of a job is worth (`runs`), and which batch a job gets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from garfield.core.types import Indices
from garfield.elastic.policy.admission import admitted
from garfield.elastic.policy.allocation import Runs, fill
from garfield.elastic.policy.batch_size import largest_batch, share, told
from garfield.elastic.policy.decision import Decision, Share
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import Policy
from garfield.elastic.policy.powers_of_two import rounded
from garfield.elastic.policy.snapshot import Snapshot


class SharingPolicy(Policy):
    """All GPUs are used up to what jobs may have, beginning from the minima."""

    @abstractmethod
    def runs(self, jobs: Sequence[Job], low: Indices, high: Indices) -> Runs:
        """What workers above `low`, up to `high`, are worth; jobs are in order of arrival."""

    def batch_of(self, job: Job, workers: int) -> int:
        """The batch of each worker; the same as before, unless it must be smaller."""
        return min(job.batch, largest_batch(job, workers))

    def decide(self, snapshot: Snapshot) -> Decision:
        """Admit, share out, and look at each job's batch."""
        jobs = sorted(admitted(snapshot).jobs, key=lambda job: job.arrival)
        workers = rounded(jobs, self._shared_out(jobs, snapshot.gpus), snapshot.gpus)
        return Decision(
            {job.name: self._share(job, workers.get(job.name, 0)) for job in snapshot.jobs}
        )

    def _shared_out(self, jobs: Sequence[Job], gpus: int) -> dict[str, int]:
        if not jobs:
            return {}
        low = np.array([job.request.min_workers for job in jobs])
        high = np.array([job.most_workers for job in jobs])
        found = fill(low, self.runs(jobs, low, high), gpus)
        return {job.name: int(count) for job, count in zip(jobs, found, strict=True)}

    def _share(self, job: Job, workers: int) -> Share:
        batch = self.batch_of(job, workers) if workers else job.batch
        reason = told(job, workers)
        if workers and job.workers and batch != job.batch:
            reason += f", batch {job.batch} → {batch}"
        return share(job, workers, batch, reason)
