"""What a local cluster does now, as `garfield elastic status` shows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from garfield.core.errors import GarfieldError
from garfield.elastic.control.record import JobRecord
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.database import KeptJob


@dataclass(frozen=True)
class JobStatus:
    """A line of the table."""

    name: str
    phase: str
    team: str
    workers: int
    """Workers that it was given."""
    processes: int
    """Processes that it has."""
    min_workers: int
    max_workers: int
    batch: int
    step: int
    epoch: int | None
    throughput: float | None
    """Samples a second, as last measured at this size."""
    rescalings: int
    queueing_s: float
    jct_s: float | None
    """None until it has ended."""
    age_s: float
    why: str


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster and its jobs, by arrival."""

    directory: str
    daemon: int | None
    """The pid, if it runs: otherwise jobs go on, and nothing changes."""
    slots: int
    used: int
    """Slots that a process has."""
    jobs: list[JobStatus]


def status_of(cluster: Cluster) -> ClusterStatus:
    """Look at a cluster, whether its daemon runs or not."""
    database = cluster.database()
    try:
        jobs, workers = database.jobs(), database.workers()
        slots, at_s = database.slots, database.now_s()
    finally:
        database.close()
    count = Counter(worker.job for worker in workers)
    told = [_job(cluster, job, count[job.number], at_s) for job in jobs]
    return ClusterStatus(str(cluster.path), cluster.daemon(), slots, len(workers), told)


def _job(cluster: Cluster, kept: KeptJob, processes: int, at_s: float) -> JobStatus:
    record, job = kept.record, kept.record.job
    step, epoch = _progress(cluster, kept.number) if record.job.workers else (0, None)
    latest = job.latest
    return JobStatus(
        name=kept.file.name,
        phase=record.phase.value,
        team=job.request.team,
        workers=job.workers,
        processes=processes,
        min_workers=job.request.min_workers,
        max_workers=job.request.max_workers,
        batch=job.batch,
        step=max(step, record.farthest_step),
        epoch=epoch,
        throughput=None if latest is None else latest.throughput,
        rescalings=job.rescalings,
        queueing_s=record.queueing_s(at_s),
        jct_s=record.completion_s(),
        age_s=_age_s(record, at_s),
        why=record.why,
    )


def _age_s(record: JobRecord, at_s: float) -> float:
    return (at_s if record.is_active else record.since_s) - record.submitted_s


def _progress(cluster: Cluster, number: int) -> tuple[int, int | None]:
    """Step and epoch that a worker told last; the daemon looks at them only now and then."""
    try:
        agreed = SqliteCoordination(cluster.agreement_of(number), create=False)
    except GarfieldError:
        return 0, None
    try:
        told = [each for each in agreed.reports().values() if isinstance(each.get("step"), int)]
    except GarfieldError:
        return 0, None
    finally:
        agreed.close()
    newest = max(told, key=lambda each: int(each["step"]), default={})
    return int(newest.get("step", 0)), newest.get("epoch")
