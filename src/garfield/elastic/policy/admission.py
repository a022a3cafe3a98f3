"""Who may run: thesis, 4.5.3 and 4.5.5.

Between rounds a job starts at once with its starting workers if that many GPUs are idle. In a
round the running jobs make room: first come, first served, a waiting job enters if the minima of
all before it and its own fit. Nobody is overtaken, except a job whose minimum exceeds all GPUs
there are now: it would hold up everybody until some come back.

If the minima of running jobs exceed the GPUs, because a node was lost, the latest arrivals are
suspended until the others' fit. They wait at the head of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from garfield.core.errors import ConfigError
from garfield.elastic.policy.jobs import Job, JobRequest
from garfield.elastic.policy.snapshot import Snapshot


@dataclass(frozen=True)
class Admitted:
    """Jobs that have workers after a round, and those that do not."""

    running: tuple[Job, ...]
    """Jobs that have workers already and go on, by arrival."""
    entering: tuple[Job, ...]
    """Jobs that have none yet, in the order of the queue."""
    suspended: tuple[Job, ...]
    """Jobs that lose all their workers."""
    waiting: tuple[Job, ...]
    """Jobs that there is no room for."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All that run after the round."""
        return self.running + self.entering


def admitted(snapshot: Snapshot) -> Admitted:
    """Who runs after a round in which everybody may be scaled down to its minimum."""
    running, suspended = fitting(snapshot, lambda job: job.request.min_workers)
    if suspended:  # nobody enters while there is not even room for those that were here
        return Admitted(running, (), suspended, snapshot.waiting)
    left = snapshot.gpus - sum(job.request.min_workers for job in running)
    entering = _first(snapshot.waiting, left, snapshot.gpus, lambda job: job.request.min_workers)
    names = {job.name for job in entering}
    waiting = tuple(job for job in snapshot.waiting if job.name not in names)
    return Admitted(running, entering, (), waiting)


def fitting(
    snapshot: Snapshot, needs: Callable[[Job], int]
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Running jobs that go on and those that are suspended, the latest arrivals first."""
    running = list(snapshot.running)
    suspended: list[Job] = []
    needed = sum(map(needs, running))
    while needed > snapshot.gpus:
        suspended.append(running.pop())
        needed -= needs(suspended[-1])
    return tuple(running), tuple(reversed(suspended))


def startable(snapshot: Snapshot, *, least: bool = False) -> dict[str, int]:
    """Workers of waiting jobs that can start on idle GPUs alone, first come, first served.

    With `least` a job takes what is idle if that is at least its minimum.
    """
    found: dict[str, int] = {}
    idle = snapshot.idle
    for job in snapshot.waiting:
        wanted = starting_workers(job)
        if job.request.min_workers > snapshot.gpus:
            continue  # cannot run now, whoever ends: the others need not wait for it
        if least:
            wanted = max(job.request.min_workers, min(wanted, idle))
        if wanted > idle:
            break
        found[job.name] = wanted
        idle -= wanted
    return found


def starting_workers(job: Job) -> int:
    """Workers that a job starts with where there is room."""
    return min(job.request.start_workers, job.most_workers)


def check_fits(name: str, request: JobRequest, gpus: int) -> None:
    """Raise ConfigError for a job that could never run on that many GPUs."""
    if request.min_workers > gpus:
        raise ConfigError(
            f"{name} needs at least {request.min_workers} workers, and there are {gpus} GPUs. "
            "Lower min-workers, or add GPUs."
        )


def _first(
    queue: Iterable[Job], left: int, gpus: int, needs: Callable[[Job], int]
) -> tuple[Job, ...]:
    found: list[Job] = []
    for job in queue:
        if needs(job) > gpus:
            continue
        if needs(job) > left:
            break
        found.append(job)
        left -= needs(job)
    return tuple(found)
