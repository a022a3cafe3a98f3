"""What real jobs did on a local cluster: a table, and a picture of slots over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rich.table import Table

from garfield.report.drawing import matplotlib
from garfield.report.elastic_table import Summaries
from garfield.report.plain_tables import plain_table
from garfield.report.plots import FAINT, INK, bare

JobHistory: TypeAlias = Any
"""A `garfield.elastic.local.history.JobHistory`, which stands above this layer."""

_COLOURS = ("#2563a8", "#e0912f", "#2a9d63", "#7b4fa3", "#c9302c", "#0f8b8d", "#8a8a8a", "#5f5f00")


def jobs_table(summaries: Summaries) -> Table:
    """A line per policy: what jobs took, all of it measured."""
    headings = ("JCT, s", "makespan, s", "queueing, s", "rescalings", "finished")
    table = plain_table("policy", *headings, right=len(headings))
    for name, each in summaries.items():
        table.add_row(
            name,
            *(_number(each[key]) for key in ("jct_s", "makespan_s", "queueing_s", "rescalings")),
            f"{each['finished']} of {each['submitted']}",
        )
    return table


def draw_slots(histories: Mapping[str, Sequence[JobHistory]], slots: int, path: Path) -> None:
    """Draw who had how many slots when, a panel per policy."""
    figure = matplotlib().figure.Figure(
        figsize=(10, 0.8 + 2.5 * len(histories)), layout="constrained"
    )
    all_axes = figure.subplots(len(histories), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (policy, jobs) in zip(all_axes, histories.items(), strict=True):
        _draw_panel(axes, jobs, slots)
        axes.set_title(_told(policy, jobs), fontsize=10, color=INK, loc="left")
    all_axes[-1].set_xlim(0, 1.03 * max(map(_length_s, histories.values()), default=1.0))
    all_axes[-1].set_xlabel("seconds since the first job was submitted", color=INK)
    names = [job.name for job in next(iter(histories.values()), ())]
    handles = [
        matplotlib().patches.Patch(color=_COLOURS[at % len(_COLOURS)], label=name)
        for at, name in enumerate(names)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle(
        "Worker processes of each job; ▼ arrives, ● has finished", fontsize=12, color=INK
    )
    figure.savefig(path, dpi=120)


def _draw_panel(axes: Any, jobs: Sequence[JobHistory], slots: int) -> None:
    """Stack jobs' processes over time."""
    begin = min((job.submitted_s for job in jobs), default=0.0)
    moments = sorted({begin, *(at for job in jobs for at, _ in job.workers)})
    floor = [0] * len(moments)
    for at, job in enumerate(jobs):
        colour = _COLOURS[at % len(_COLOURS)]
        top = [low + _workers(job, moment) for low, moment in zip(floor, moments, strict=True)]
        seconds = [moment - begin for moment in moments]
        axes.fill_between(seconds, floor, top, step="post", color=colour, alpha=0.85, linewidth=0)
        axes.plot(job.submitted_s - begin, slots + 0.3, "v", color=colour, clip_on=False)
        if job.ended_s is not None:
            axes.plot(job.ended_s - begin, slots + 0.3, "o", color=colour, clip_on=False)
        floor = top
    axes.axhline(slots, color=FAINT, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, slots + 0.6)
    axes.set_yticks(range(slots + 1))
    axes.set_ylabel("slots", color=INK)
    bare(axes)


def _length_s(jobs: Sequence[JobHistory]) -> float:
    """Seconds from the first submission to the last thing that happened."""
    moments = [each for job in jobs for each in (job.submitted_s, *(at for at, _ in job.workers))]
    return max(moments) - min(moments) if moments else 1.0


def _workers(job: JobHistory, moment: float) -> int:
    return next((count for at, count in reversed(job.workers) if at <= moment), 0)


def _told(policy: str, jobs: Sequence[JobHistory]) -> str:
    done = [job for job in jobs if job.jct_s is not None]
    mean = sum(job.jct_s for job in done) / len(done) if done else 0.0
    return f"{policy}: mean completion time {mean:.0f} s"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
