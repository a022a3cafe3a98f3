"""ERA, the rule of the thesis (4.3.2): workers by equations 4.1–4.3, batch sizes by thresholds.

    e_j = t_j(n_j) / (n_j · t_j(1))      how well the job scales, at the size that it has
    γ_j = s_j / max(1, s)                how often it was rescaled, in s rounds since it arrived

The thesis divides by all rounds there ever were; then γ would vanish for whoever arrives late.
Waiting jobs enter with n = 0, e = 1 and γ = 0 and get from their minimum to their starting
workers, so that running jobs make room for them. All GPUs are used, up to what jobs may have.

As e_j is frozen at n_j, every worker of a job is worth the same and the optimum gives some jobs all
they may have and others their minimum: `era_marginal` asks for each further worker's gain instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from garfield.core.types import Indices
from garfield.elastic.policy.allocation import Runs, two_sided
from garfield.elastic.policy.batch_size import Thresholds, scaled_batch
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import policy
from garfield.elastic.policy.sharing import SharingPolicy
from garfield.elastic.policy.throughput import MODELS, efficiency


class TwoDimensional(SharingPolicy):
    """Shares out all GPUs and scales batches: what `era` and `era-marginal` have in common."""

    def __init__(self, *, batch: bool = True, compute: float = 0.85, memory: float = 0.80) -> None:
        """`batch` says whether batches are scaled; `compute` and `memory` are the thresholds."""
        self.scales_batch = batch
        self.thresholds = Thresholds(compute, memory)

    def batch_of(self, job: Job, workers: int) -> int:
        if not self.scales_batch or not job.workers:
            return super().batch_of(job, workers)
        return scaled_batch(job, workers, self.thresholds)


@policy("era")
class Era(TwoDimensional):
    """The thesis's rule: equations 4.1–4.3 with efficiencies frozen at the current size."""

    def __init__(
        self,
        *,
        model: str = "measured",
        batch: bool = True,
        compute: float = 0.85,
        memory: float = 0.80,
    ) -> None:
        """`model` is how throughput is predicted: see `throughput`."""
        super().__init__(batch=batch, compute=compute, memory=memory)
        self.model = MODELS[model]

    def runs(self, jobs: Sequence[Job], low: Indices, high: Indices) -> Runs:
        now = np.array([job.workers for job in jobs])
        worth = np.array([self._efficiency(job) for job in jobs])
        return two_sided(low, now, high, worth, np.array([penalty(job) for job in jobs]))

    def _efficiency(self, job: Job) -> float:
        if not job.workers or not job.is_measured:
            return 1.0
        return efficiency(self.model(job.measurements, job.batch), job.workers)


def penalty(job: Job) -> float:
    """γ of the thesis: rescalings in the rounds since the job arrived; 0 for one that waits."""
    return job.rescalings / max(1, job.rounds) if job.workers else 0.0
