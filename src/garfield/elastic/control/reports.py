"""What workers told (`Coordination.reports`), as measurements of their job.

Reports of the newest generation that was measured are averaged over its workers (thesis, 4.3.2).
Who is no member any more, or has not measured anything yet, is passed over; so is what is not a
report, as a training script may write anything there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from garfield.core.bounds import is_finite
from garfield.elastic.control.record import JobRecord
from garfield.elastic.policy.measurement import Measurement, averaged

Reports = Mapping[str, Mapping[str, Any]]
"""The last report of each worker, by its name."""


@dataclass(frozen=True)
class WorkerCapacity:
    """What a worker on a CPU may use. A GPU tells by itself which part of it is in use."""

    cpus: float = 1.0
    """Cores for each of its threads."""
    memory_bytes: int | None = None
    """None if it has no limit: then its use of memory is not known, and its batch not scaled."""


FULL_CORE = WorkerCapacity()


def with_reports(
    record: JobRecord,
    reports: Reports,
    members: Collection[str],
    *,
    began_s: float = 0.0,
    most_batch: int | None = None,
    capacity: WorkerCapacity = FULL_CORE,
) -> JobRecord:
    """The same job with what its members told.

    Their times are seconds since 1970, ours since `began_s` of these. `most_batch` is the largest
    batch that still fits into memory, once one did not.
    """
    told = [reports[member] for member in members if member in reports]
    job = record.job
    measurement = _measured([each for each in told if _is_measured(each)], began_s, capacity)
    if measurement is not None:
        job = job.measured(measurement)
    if most_batch is not None and (job.oom_batch is None or 2 * most_batch < job.oom_batch):
        job = job.out_of_memory(2 * most_batch)
    farthest = max(map(_step, reports.values()), default=0)  # also of those who have ended since
    return replace(record, job=job).at_step(farthest)


def _measured(
    told: list[Mapping[str, Any]], began_s: float, capacity: WorkerCapacity
) -> Measurement | None:
    """The mean of the newest; None if there are none."""
    if not told:
        return None
    newest = max(told, key=lambda each: (each.get("generation", 0), each["time"]))
    size = _size(newest)
    same = [each for each in told if _size(each) == size]
    return averaged([_measurement(each, began_s, capacity) for each in same])


def _measurement(told: Mapping[str, Any], began_s: float, capacity: WorkerCapacity) -> Measurement:
    compute, memory = told.get("gpu"), told.get("gpu_memory")
    if compute is None and _is_number(told.get("cpu")):
        compute = told["cpu"] / capacity.cpus
    if memory is None and _is_number(told.get("rss_bytes")) and capacity.memory_bytes:
        memory = told["rss_bytes"] / capacity.memory_bytes
    return Measurement(
        told["workers"], told["batch"], told["throughput"], _part(compute), _part(memory),
        told["time"] - began_s,
    )  # fmt: skip


def _size(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return told.get("generation", 0), told["workers"], told["batch"]


def _is_measured(told: Mapping[str, Any]) -> bool:
    counts = {"workers": 1, "batch": 1, "generation": 0}
    return (
        all(_is_count(told.get(name, 0), least) for name, least in counts.items())
        and _is_number(told.get("time"))
        and _is_number(told.get("throughput"))
        and told["throughput"] > 0
    )


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _step(told: Mapping[str, Any]) -> int:
    step = told.get("step")
    return step if isinstance(step, int) else 0


def _part(value: Any) -> float | None:
    return min(1.0, max(0.0, float(value))) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    """Whether it is one, and finite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
