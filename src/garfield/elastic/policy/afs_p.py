"""AFS-P: one GPU each, then every further one to the job with the largest predicted gain.

Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning", NSDI 2021, as the thesis
uses it (4.5.2): no knowledge of how long a job will train, batch sizes stay, decisions as often
as ERA's. A gain is measured in units of what the job's first GPU does, as samples of two models
are not comparable, and predicted by the concave model of `throughput`. A job's own minimum counts
where it is above one.
"""

from __future__ import annotations

from collections.abc import Sequence

from garfield.core.types import Indices
from garfield.elastic.policy.allocation import Runs
from garfield.elastic.policy.era_marginal import predicted_gains, runs_of_workers
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import policy
from garfield.elastic.policy.sharing import SharingPolicy


@policy("afs-p")
class AfsP(SharingPolicy):
    """One GPU each, then to the largest predicted gain."""

    def runs(self, jobs: Sequence[Job], low: Indices, high: Indices) -> Runs:
        values = [predicted_gains(job, most) for job, most in zip(jobs, high, strict=True)]
        return runs_of_workers(values, low)
