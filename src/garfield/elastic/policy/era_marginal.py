"""ERA with gains that diminish: what each further worker adds, by a concave model fitted per job.

    max Σ_j t_j(n_j + Δ_j) / t_j(1) − γ_j·|Δ_j|        under the constraints of equation 4.1

t_j is the concave model of `throughput`. Where `era` multiplies a frozen efficiency by Δ, this sums
what each worker adds, in units of the job's first worker: jobs meet at equal gains instead of some
having all and others their minimum. Still separable and concave, so `allocation` solves it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from garfield.core.types import Indices, Matrix
from garfield.elastic.policy.allocation import Runs
from garfield.elastic.policy.era import TwoDimensional, penalty
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import policy
from garfield.elastic.policy.throughput import MODELS, gains


@policy("era-marginal")
class EraMarginal(TwoDimensional):
    """ERA, each further worker valued by what it would add."""

    def runs(self, jobs: Sequence[Job], low: Indices, high: Indices) -> Runs:
        values = [
            predicted_gains(job, most)
            + np.where(np.arange(most) < job.workers, 1, -1) * penalty(job)
            for job, most in zip(jobs, high, strict=True)
        ]
        return runs_of_workers(values, low)


def predicted_gains(job: Job, most: int) -> Matrix:
    """What worker 1, 2, … most adds; 1 each for a job that was not measured."""
    if not job.is_measured:
        return np.ones(most)
    return gains(MODELS["concave"](job.measurements, job.batch), most)


def runs_of_workers(values: Sequence[Matrix], low: Indices) -> Runs:
    """Runs of one worker each, of those above the minima; values[j][k] is worker k's of job j."""
    lengths = np.array([len(value) - least for value, least in zip(values, low, strict=True)])
    return Runs(
        np.repeat(np.arange(len(values)), lengths),
        np.concatenate([value[least:] for value, least in zip(values, low, strict=True)]),
        np.ones(int(lengths.sum()), dtype=np.intp),
    )
