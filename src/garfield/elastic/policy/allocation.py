"""Workers shared out exactly: equations 4.1 and 4.3 of the thesis, without a solver.

    max Σ e_j·Δ_j − γ_j·|Δ_j|    with min_j ≤ n_j + Δ_j ≤ max_j and Σ n_j + Δ_j = min(G, Σ max_j)

Every job's value is concave in its number of workers, and each worker takes one GPU: so giving the
next GPU to whom it is worth most, beginning from the minima, is optimal (Fox, Operations Research
1966). A worker that the job has already is worth e + γ, a further one e − γ. As these are two
*runs* of workers of one value each, runs are sorted and filled, and not single workers.

Ties go to the earlier arrival. Costs O(r log r) for r runs, whatever the number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from garfield.core.types import Indices, Matrix

_DIGITS = 9
"""Values that agree to so many digits are a tie: the rest is rounding."""


@dataclass(frozen=True)
class Runs:
    """Workers of equal value: `length` of them for job `job`. Of one job, the more valued first."""

    job: Indices
    value: Matrix
    length: Indices


def two_sided(
    low: Indices, now: Indices, high: Indices, efficiency: Matrix, penalty: Matrix
) -> Runs:
    """The runs of equation 4.1 above the minima `low`, up to `high`, jobs in order of arrival."""
    jobs = np.arange(len(low))
    has = np.clip(now, low, high)
    return Runs(
        np.concatenate([jobs, jobs]),
        np.concatenate([efficiency + penalty, efficiency - penalty]),
        np.concatenate([has - low, high - has]),
    )


def fill(low: Indices, runs: Runs, gpus: int) -> Indices:
    """Workers of each job: at least `low`, then the most valued runs while there are GPUs.

    `low` must fit. A run with a negative value is filled too: all GPUs are used (equation 4.1).
    """
    values = np.round(runs.value, _DIGITS)
    order = np.lexsort((runs.job, -values))  # stable: runs of one job and value keep their order
    lengths = runs.length[order]
    before = np.cumsum(lengths) - lengths
    given = np.clip(gpus - int(low.sum()) - before, 0, lengths)
    filled = np.bincount(runs.job[order], weights=given, minlength=len(low))
    return low + filled.astype(low.dtype)


def objective(found: Indices, now: Indices, efficiency: Matrix, penalty: Matrix) -> float:
    """The value of equation 4.1."""
    change = found - now
    return float(efficiency @ change - penalty @ np.abs(change))
