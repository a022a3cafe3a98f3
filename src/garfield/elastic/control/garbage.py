"""Jobs that failed, and those that half failed (thesis, 4.4.3).

With at least its minimum of workers alive a job is scaled to those. With fewer, what it has is
reclaimed and it goes back to the head of the queue, to go on from its last checkpoint. A job that
fails again and again without coming any farther is given up: so a script that exits at once is
started `retries` times more, and not for ever. Farther means a step that no start before came to:
one that fails at the same step each time is given up too.

A worker that was killed for its memory halves the batch of all, for good: what starts then is
another job than the one that failed, and counts as none of its starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.policy.decision import Share

RETRIES = 2


class Verdict(str, Enum):
    """What is to be done about a job."""

    HEALTHY = "healthy"
    FINISHED = "finished"
    """Its training has come to its end: let its workers go."""
    SHRUNK = "shrunk"
    """Go on with the workers that live."""
    RECLAIMED = "reclaimed"
    """End the workers that live; start it again when it is its turn."""
    FAILED = "failed"
    """End the workers that live, for good."""


@dataclass(frozen=True)
class JobHealth:
    """A running job's workers, at one moment."""

    alive: int
    """Workers that train, or are about to."""
    finished: bool = False
    """Its training has said that it has come to its end."""
    endings: Sequence[str] = ()
    """How workers ended that nobody had asked to, for people: "w3: exit code 1"."""
    out_of_memory: bool = False
    """One of them was killed because it took more memory than it may."""


def examined(
    record: JobRecord, seen: JobHealth, at_s: float, *, retries: int = RETRIES
) -> tuple[Verdict, JobRecord]:
    """What is to be done about a job that has workers, and its record after that.

    What its workers told is to be in the record before (`with_reports`).
    """
    job = record.job
    if seen.finished:
        return Verdict.FINISHED, record.ended(Phase.FINISHED, at_s, "its training has ended")
    if seen.alive >= job.workers:
        return Verdict.HEALTHY, record
    ended = "; ".join(seen.endings) or f"{job.workers - seen.alive} of {job.workers} are gone"
    is_halved = seen.out_of_memory and job.batch > 1
    if is_halved:
        ended += f"; out of memory: batch {job.batch} → {job.batch // 2}"
        job = replace(job.out_of_memory(job.batch), batch=job.batch // 2)
        record = replace(record, job=job)
    if seen.alive >= job.request.min_workers:
        share = Share(seen.alive, job.batch, reason=f"goes on with {seen.alive} workers: {ended}")
        return Verdict.SHRUNK, record.given(share, at_s)
    came_farther = record.farthest_step > record.started_at_step
    fruitless = 0 if came_farther or is_halved else record.fruitless_starts + 1
    record = replace(record, fruitless_starts=fruitless)
    if fruitless > retries:
        why = f"failed {fruitless} times at step {record.farthest_step}: {ended}"
        return Verdict.FAILED, record.ended(Phase.FAILED, at_s, why)
    why = f"is to start again from its last checkpoint: {ended}"
    return Verdict.RECLAIMED, record.given(Share(0, job.batch, reason=why), at_s)
