"""The pictures of a simulated cluster: what each policy did over time, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from garfield.report.drawing import matplotlib
from garfield.report.elastic_table import Summaries
from garfield.report.plots import FAINT, INK, bare

Point: TypeAlias = Any
"""A `garfield.elastic.simulator.outcome.Point`, which stands above this layer."""

_COLOURS = {
    "era": "#2563a8", "era-marginal": "#7b4fa3", "static": "#8a8a8a", "autoscaler": "#e0912f",
    "afs-p": "#2a9d63",
}  # fmt: skip
_OTHERS = ("#c9302c", "#0f8b8d", "#a05195", "#5f5f00")
_PANELS = (
    ("gpus", "GPUs in use", 1),
    ("running", "running jobs", 1),
    ("completed", "completed jobs", 1),
    ("throughput", "samples/s of a job, mean", 1),
    ("compute", "compute of GPUs in use, % (modelled)", 100),
    ("memory", "memory of GPUs in use, % (modelled)", 100),
)
_BARS = (
    ("jct_s", "job completion time, min", 1 / 60),
    ("makespan_s", "makespan, min", 1 / 60),
    ("queueing_s", "queueing, min", 1 / 60),
    ("throughput", "samples/s of a job", 1),
)


def draw_policies(
    series: Mapping[str, Sequence[Point]], summaries: Summaries, title: str, directory: Path
) -> list[Path]:
    """Draw a comparison into a directory; the files."""
    drawn = {"time.png": over_time(series, title), "summary.png": bars(summaries, title)}
    for name, figure in drawn.items():
        figure.savefig(directory / name, dpi=120)
    return [directory / name for name in drawn]


def over_time(series: Mapping[str, Sequence[Point]], title: str) -> Any:
    """Draw six numbers of the cluster over time, a line per policy."""
    figure = matplotlib().figure.Figure(figsize=(12, 6.6), layout="constrained")
    colours = _colours(series)
    for axes, (name, label, factor) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
        for policy, points in series.items():
            known = [point for point in points if getattr(point, name) is not None]
            hours = [point.at_s / 3600 for point in known]
            heights = [factor * getattr(point, name) for point in known]
            axes.plot(hours, heights, color=colours[policy], linewidth=1.4, label=policy)
        axes.set_ylabel(label, color=INK)
        axes.set_xlabel("hours", color=INK)
        axes.set_ylim(bottom=0)
        bare(axes)
    handles = [_line(colours[name], name) for name in series]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle(f"The cluster over time · {title}", fontsize=12, fontweight="bold", color=INK)
    return figure


def bars(summaries: Summaries, title: str) -> Any:
    """Draw what came of it, a bar per policy."""
    figure = matplotlib().figure.Figure(figsize=(12, 3.4), layout="constrained")
    colours = _colours(summaries)
    names = list(summaries)
    for axes, (key, label, factor) in zip(figure.subplots(1, 4), _BARS, strict=True):
        heights = [factor * (summaries[name][key] or 0.0) for name in names]
        axes.bar(range(len(names)), heights, color=[colours[name] for name in names], width=0.7)
        for place, height in enumerate(heights):
            axes.text(
                place, height, f"{height:,.0f}", ha="center", va="bottom", fontsize=8, color=FAINT
            )
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axes.set_title(label, fontsize=10, color=INK)
        bare(axes)
    figure.suptitle(f"What came of it · {title}", fontsize=12, fontweight="bold", color=INK)
    return figure


def _colours(names: Mapping[str, Any]) -> dict[str, str]:
    """A colour of its own for each policy we know, for others one of the rest."""
    others = iter(_OTHERS * 4)
    return {name: _COLOURS.get(name) or next(others, FAINT) for name in names}


def _line(colour: str, label: str) -> Any:
    return matplotlib().patches.Patch(color=colour, label=label)
