"""A local cluster and its jobs, as a table."""

from __future__ import annotations

from typing import Any, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from garfield.report.plain_tables import plain_table

ClusterStatus: TypeAlias = Any
"""What is shown: a `garfield.elastic.local.status.ClusterStatus`, from above this layer."""

_COLOURS = {
    "running": "green", "waiting": "yellow", "suspended": "yellow", "failed": "red",
    "finished": "dim", "cancelled": "dim",
}  # fmt: skip


def status_table(status: ClusterStatus) -> RenderableType:
    """One line about the cluster, and one for each job."""
    headings = ("workers", "batch", "step", "samples/s", "rescaled", "queued, s", "age, s")
    table = plain_table("job", "state", *headings, right=len(headings))
    table.add_column("last", overflow="ellipsis", no_wrap=True)
    for job in status.jobs:
        table.add_row(
            job.name,
            Text(job.phase, style=_COLOURS.get(job.phase, "")),
            _workers(job),
            str(job.batch),
            str(job.step) if job.step else "–",
            "–" if job.throughput is None else f"{job.throughput:,.0f}",
            str(job.rescalings),
            f"{job.queueing_s:,.0f}",
            f"{job.age_s:,.0f}",
            Text(job.why),
        )
    return Group(_headline(status), Text(), table)


def _headline(status: ClusterStatus) -> Text:
    used = f"{status.used} of {status.slots} slots in use"
    if status.daemon is None:
        return Text(
            f"{used}. No daemon runs: jobs go on as they are. "
            "Start it again: garfield elastic up", style="yellow",
        )  # fmt: skip
    return Text(f"{used}, daemon {status.daemon}")


def _workers(job: Any) -> str:
    if not job.workers and not job.processes:
        return "–"
    moving = f" ({job.processes})" if job.processes != job.workers else ""
    return f"{job.workers}{moving} of {job.min_workers}–{job.max_workers}"
