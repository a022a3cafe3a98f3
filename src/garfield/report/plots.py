"""The pictures of a run: accuracy, where a step's time goes, and who was trusted when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.types import Matrix
from garfield.report.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    VERMILION,
    entitle,
    matplotlib,
    save_pictures,
)
from garfield.report.drawing import FAINT as FAINT  # for other pictures, too
from garfield.report.drawing import INK as INK
from garfield.report.run_history import Roster, RunHistory, standing
from garfield.report.scores import ACCURACY, Score
from garfield.report.summary import breakdown

LINE = BLUE
PARTS = {"compute_s": BLUE, "communication_s": ORANGE, "aggregation_s": GREEN}
STANDINGS = {
    "trusted": GREEN,
    "heard": "#a9d3ee",
    "left out": ORANGE,
    "silent": "#444444",
    "not needed": "#e4e4e4",
}
_WORDS = {
    "trusted": "trusted",
    "heard": "heard (the rule weighs every number apart)",
    "left out": "left out by the rule",
    "silent": "silent, or sent what is no gradient",
    "not needed": "not waited for",
}
_MOST_COLUMNS = 240


def draw_all(history: RunHistory, title: str, directory: Path, kind: str = "png") -> list[Path]:
    """Whatever there is something to draw of, as png, svg or pdf; none: nothing."""
    pictures: dict[str, Callable[[], Any]] = {}
    if history.curve:
        named = ACCURACY if metric_of(history) == ACCURACY else "score"
        pictures[named] = lambda: accuracy(history, title)
    if history.steps:
        pictures["breakdown"] = lambda: latency(history, title)
        pictures["trust"] = lambda: trust(history, title)
    return save_pictures(pictures, directory, kind)


def accuracy(history: RunHistory, title: str) -> Any:
    """Draw accuracy, or the run's own metric, over steps and over time, side by side."""
    figure = matplotlib().figure.Figure(figsize=(10, 4), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    metric = metric_of(history)
    scale = 100 if metric == ACCURACY else 1
    heights = [scale * point.score.value for point in history.curve]
    for axes, label, places in (
        (by_step, "steps", [point.step for point in history.curve]),
        (by_time, "seconds of training", [point.time_s for point in history.curve]),
    ):
        axes.plot(places, heights, color=LINE, linewidth=2, marker="o", markersize=4)
        axes.set_xlabel(label, color=INK)
        axes.set_xlim(left=0)
        bare(axes)
        for part in history.parts[1:]:
            if axes is by_step:
                axes.axvline(part.first_step, color=FAINT, linewidth=1, linestyle=":")
    last = history.curve[-1].score
    if metric == ACCURACY:
        by_step.set_ylim(0, 100)
        by_step.set_ylabel("right on the test set, %", color=INK)
    else:
        better = "larger" if last.larger_is_better else "smaller"
        by_step.set_ylabel(f"{metric} on the test set ({better} is better)", color=INK)
    _note_last(by_step, last, top=not last.larger_is_better)
    named = metric.capitalize() if metric == ACCURACY else metric
    entitle(figure, f"{named} · {title}")
    return figure


def metric_of(history: RunHistory) -> str:
    """The name of what the run was judged by."""
    return history.curve[-1].score.metric if history.curve else ACCURACY


def latency(history: RunHistory, title: str) -> Any:
    """A step as one stacked bar."""
    parts = {name: 1000 * seconds for name, seconds in breakdown(history).items()}
    figure = matplotlib().figure.Figure(figsize=(10, 2.4), layout="constrained")
    axes = figure.subplots()
    whole, at = sum(parts.values()) or 1.0, 0.0
    for name, width in parts.items():
        axes.barh(0, width, left=at, height=0.6, color=PARTS[name])
        if width > 0.09 * whole:
            words = {"ha": "center", "va": "center", "color": "white", "fontweight": "bold"}
            axes.text(at + width / 2, 0, f"{width:.3g} ms", **words)
        at += width
    handles = [
        _patch(PARTS[name], f"{name.removesuffix('_s')}  {width:.3g} ms ({width / whole:.0%})")
        for name, width in parts.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    axes.set_yticks([])
    axes.set_xlim(0, whole)
    axes.set_xlabel("milliseconds a step", color=INK)
    bare(axes, grid=False)
    entitle(figure, f"Where a step's time goes · {title}")
    return figure


def trust(history: RunHistory, title: str) -> Any:
    """Workers down, steps across; a column may stand for several steps, its colours mixed."""
    roster, steps = history.roster, [event["step"] for event in history.steps]
    height = 1.6 + 0.26 * min(len(roster.workers), 60)
    figure = matplotlib().figure.Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots()
    extent = (steps[0] - 1, steps[-1], len(roster.workers) - 0.5, -0.5)
    axes.imshow(_colours(history), aspect="auto", interpolation="nearest", extent=extent)
    _name_workers(axes, roster)
    axes.set_xlabel("steps", color=INK)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row in range(1, len(roster.workers)):
        axes.axhline(row - 0.5, color="white", linewidth=1)
    found = {standing(event, name) for event in history.steps for name in roster.workers}
    handles = [_patch(STANDINGS[kind], _WORDS[kind]) for kind in STANDINGS if kind in found]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    entitle(figure, f"Who was trusted when · {title}")
    return figure


def bare(axes: Any, *, grid: bool = True) -> None:
    """Remove the frame, which says nothing."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=INK, length=0)
    if grid:
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)


def _colours(history: RunHistory) -> Matrix:
    """(workers, columns, 3): the mean colour of the steps that a column stands for."""
    of = {kind: matplotlib().colors.to_rgb(colour) for kind, colour in STANDINGS.items()}
    rows = [
        [of[standing(event, worker)] for event in history.steps]
        for worker in history.roster.workers
    ]
    pixels = np.array(rows)
    if pixels.shape[1] <= _MOST_COLUMNS:
        return pixels
    columns = np.array_split(pixels, _MOST_COLUMNS, axis=1)
    return np.stack([column.mean(axis=1) for column in columns], axis=1)


def _name_workers(axes: Any, roster: Roster) -> None:
    every = -(-len(roster.workers) // 60)  # beyond sixty, names would overlap
    shown = range(0, len(roster.workers), every)
    names = [
        f"{roster.workers[i]}{' lies' if roster.workers[i] in roster.liars else ''}" for i in shown
    ]
    axes.set_yticks(list(shown), names, fontsize=9)
    for label, i in zip(axes.get_yticklabels(), shown, strict=True):
        liar = roster.workers[i] in roster.liars
        label.set_color(VERMILION if liar else INK)
        label.set_fontweight("bold" if liar else "normal")


def _note_last(axes: Any, last: Score, *, top: bool) -> None:
    """Say the last value where the curve is not: above one that falls."""
    axes.text(
        0.98, 0.9 if top else 0.04, f"{last.shown} at the end", transform=axes.transAxes,
        ha="right", color=LINE, fontweight="bold",
    )  # fmt: skip


def _patch(colour: str, label: str) -> Any:
    return matplotlib().patches.Patch(color=colour, label=label)
