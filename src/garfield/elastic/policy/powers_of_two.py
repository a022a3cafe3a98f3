"""Numbers of workers that are powers of two, for jobs that ask for it.

Shares are found without regard to it, then rounded down; what that frees goes round once more in
order of arrival: a job that may have any number takes what it may, one that asks for powers of
two doubles. Not optimal: with sizes that double the problem of `allocation` is no longer concave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from garfield.elastic.policy.batch_size import power_of_two
from garfield.elastic.policy.jobs import Job


def rounded(jobs: Sequence[Job], workers: Mapping[str, int], gpus: int) -> dict[str, int]:
    """The shares, rounded where jobs ask for it; jobs are in order of arrival."""
    found = dict(workers)
    asking = [job for job in jobs if job.request.powers_of_two]
    if not asking:
        return found
    for job in asking:
        found[job.name] = max(power_of_two(found[job.name]), job.request.min_workers)
    idle = gpus - sum(found.values())
    for job in jobs:
        now = found[job.name]
        if job.request.powers_of_two:
            while 2 * now <= job.most_workers and now <= idle:
                idle, now = idle - now, 2 * now
        else:
            more = min(idle, job.most_workers - now)
            idle, now = idle - more, now + more
        found[job.name] = now
    return found
