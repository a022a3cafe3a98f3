"""The batch-size scaler: the second dimension of the thesis, 4.3.2.

A worker's batch is doubled when its GPU's compute and memory are both used less than their
thresholds and the memory predicted for the doubled batch is there; it is halved when it ran out of
memory, and never as large again. It stays within the user's bounds, of a worker and of all workers
together, and is never below what the user asked for.

Memory is predicted by a line through the measurements of different batch sizes; while there is
one size only, in proportion to the batch, which is too much rather than too little.

With a fixed global batch B, n workers accumulate gradients: the least a such that ⌈B / (n·a)⌉
samples fit a worker. The last batches are smaller where n·a does not divide B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from garfield.core.bounds import Within
from garfield.elastic.policy.decision import Decision, Share
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.learning_rate import factor
from garfield.elastic.policy.snapshot import Snapshot


@dataclass(frozen=True)
class Thresholds:
    """When a GPU counts as used well enough (thesis, 4.5.1)."""

    compute: Annotated[float, Within(0, 1)] = 0.85
    """Use of compute from which a batch is not doubled."""
    memory: Annotated[float, Within(0, 1)] = 0.80
    """Use of memory from which a batch is not doubled."""


def scaled_batch(job: Job, workers: int, thresholds: Thresholds) -> int:
    """The batch of each worker after a round in which the job has `workers`."""
    most = largest_batch(job, workers)
    if job.batch > most:
        return most
    if job.request.scale_batch and _is_underused(job, thresholds) and 2 * job.batch <= most:
        return 2 * job.batch
    return job.batch


def largest_batch(job: Job, workers: int) -> int:
    """The most samples that a worker may take at a time."""
    request = job.request
    bounds = [bound for bound in (request.max_batch,) if bound is not None]
    if job.oom_batch is not None:
        bounds.append(job.oom_batch // 2)
    if request.max_global_batch is not None and workers:
        bounds.append(request.max_global_batch // workers)
    least = 1 if request.fixed_global_batch is not None else request.batch
    if not bounds:
        return 2**62
    most = min(bounds)
    if request.powers_of_two:
        most = power_of_two(most)
    return max(most, least)


def predicted_memory(job: Job, batch: int) -> float | None:
    """The use of memory with that batch, as far as reports tell; None if they do not."""
    known = {each.batch: each.memory for each in job.measurements if each.memory is not None}
    if not known:
        return None
    if len(known) == 1:
        ((only, memory),) = known.items()
        return memory * batch / only
    smallest, largest = min(known), max(known)
    slope = max(0.0, (known[largest] - known[smallest]) / (largest - smallest))
    return known[largest] + slope * (batch - largest)


def share(job: Job, workers: int, batch: int, reason: str = "") -> Share:
    """A job's share, with what follows from workers and batch: accumulation and learning rate."""
    if not workers:
        return Share(0, batch, reason=reason)
    fixed = job.request.fixed_global_batch
    if fixed is not None:
        accumulation = -(-fixed // (workers * batch))
        return Share(workers, -(-fixed // (workers * accumulation)), accumulation, 1.0, reason)
    latest = job.latest
    rate = factor(
        job.request.learning_rate,
        workers * batch,
        job.request.start_workers * job.request.batch,
        latest.noise_scale if latest else None,
    )
    return Share(workers, batch, 1, rate, reason)


def kept_shares(snapshot: Snapshot, workers: Mapping[str, int], reason: str = "") -> Decision:
    """A decision with these workers, and no others, in which no batch is scaled up."""
    shares = {}
    for job in snapshot.jobs:
        count = workers.get(job.name, 0)
        batch = min(job.batch, largest_batch(job, count))
        shares[job.name] = share(job, count, batch, reason or told(job, count))
    return Decision(shares)


def told(job: Job, workers: int) -> str:
    """What happens to a job, in words."""
    if not workers:
        return "GPUs were lost: suspended" if job.workers else "waits for GPUs"
    if not job.workers:
        return f"starts with {workers} of {job.request.start_workers} workers"
    if workers == job.workers:
        return "nothing to change"
    return f"{job.workers} → {workers} workers"


def power_of_two(number: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (max(number, 1).bit_length() - 1)


def _is_underused(job: Job, thresholds: Thresholds) -> bool:
    """Whether compute and memory are below their thresholds, and twice the batch would fit."""
    latest = job.latest
    if latest is None or latest.compute is None or latest.memory is None:
        return False
    if latest.compute >= thresholds.compute or latest.memory >= thresholds.memory:
        return False
    doubled = predicted_memory(job, 2 * job.batch)
    return doubled is not None and doubled <= 1.0
