"""The pictures of a run: accuracy, where a step's time goes, and who was trusted when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.types import Matrix
from garfield.report.drawing import matplotlib
from garfield.report.run_history import Roster, RunHistory, standing
from garfield.report.summary import breakdown

INK, FAINT = "#222222", "#8a8a8a"
LINE = "#2563a8"
PARTS = {"compute_s": "#2563a8", "communication_s": "#e0912f", "aggregation_s": "#2a9d63"}
STANDINGS = {
    "trusted": "#2a9d63",
    "heard": "#9dbfe0",
    "left out": "#f2b134",
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


def draw_all(history: RunHistory, title: str, directory: Path) -> list[Path]:
    """Whatever there is something to draw of."""
    drawn: list[Path] = []
    pictures: Mapping[str, Callable[[], Any] | None] = {
        "accuracy.png": (lambda: accuracy(history, title)) if history.curve else None,
        "breakdown.png": (lambda: latency(history, title)) if history.steps else None,
        "trust.png": (lambda: trust(history, title)) if history.steps else None,
    }
    for name, draw in pictures.items():
        if draw is not None:
            draw().savefig(directory / name, dpi=130)
            drawn.append(directory / name)
    return drawn


def accuracy(history: RunHistory, title: str) -> Any:
    """Draw accuracy over steps and over time, side by side."""
    figure = matplotlib().figure.Figure(figsize=(10, 4), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    heights = [100 * point.accuracy for point in history.curve]
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
    by_step.set_ylim(0, 100)
    by_step.set_ylabel("right on the test set, %", color=INK)
    _note_last(by_step, heights)
    figure.suptitle(f"Accuracy · {title}", fontsize=12, fontweight="bold", color=INK)
    return figure


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
    figure.suptitle(f"Where a step's time goes · {title}", fontsize=12, fontweight="bold")
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
    figure.suptitle(f"Who was trusted when · {title}", fontsize=12, fontweight="bold")
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
        label.set_color("#c9302c" if liar else INK)
        label.set_fontweight("bold" if liar else "normal")


def _note_last(axes: Any, heights: Sequence[float]) -> None:
    axes.text(
        0.98, 0.04, f"{heights[-1]:.1f} % at the end", transform=axes.transAxes,
        ha="right", color=LINE, fontweight="bold",
    )  # fmt: skip


def _patch(colour: str, label: str) -> Any:
    return matplotlib().patches.Patch(color=colour, label=label)
