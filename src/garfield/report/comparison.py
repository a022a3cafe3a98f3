"""Runs beside each other: a table, a picture of their accuracies, and what they say in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from garfield.report.drawing import matplotlib
from garfield.report.plain_tables import plain_table
from garfield.report.plots import INK, bare
from garfield.report.run_history import Point
from garfield.report.summary_table import percent, rate

COLOURS = ("#8a8a8a", "#c9302c", "#2a9d63")
_MARKS = ("s", "X", "o")


@dataclass(frozen=True)
class Entry:
    """One of the runs."""

    label: str
    liars: int
    attack: str
    rule: str
    summary: Mapping[str, Any]
    curve: Sequence[Point]

    @property
    def lies(self) -> str:
        return f"{self.liars} ({self.attack})" if self.liars else "none"

    @property
    def accuracy(self) -> float:
        return float(self.summary["accuracy"] or 0.0)


def table(entries: Sequence[Entry]) -> Table:
    """A line per run."""
    made = plain_table("run", "liars", "rule", "accuracy", "updates/s", right=2)
    best = max(entry.accuracy for entry in entries)
    for entry in entries:
        style = "green" if entry.accuracy > best - 0.1 else "bold red"
        pace = rate(entry.summary["updates_per_s"])
        accuracy = Text(percent(entry.summary["accuracy"]), style=style)
        made.add_row(Text(entry.label, style="bold"), entry.lies, entry.rule, accuracy, pace)
    return made


def sentences(entries: Sequence[Entry], workers: int) -> list[str]:
    """What liars do to averaging, and what a robust rule makes of it."""
    calm, attacked, robust = entries
    liars = attacked.liars
    lost = 100 * (calm.accuracy - attacked.accuracy)
    gap = 100 * (calm.accuracy - robust.accuracy)
    end = ", and the numbers in its model overflow" if attacked.summary.get("diverged") else ""
    nearly = f"{gap:.1f} points less than" if gap >= 0.05 else "no less than"
    harm = (
        f"{liars} liars among {workers} workers cost plain averaging {lost:.0f} points: "
        f"{percent(calm.accuracy)} without them, {percent(attacked.accuracy)} with them{end}."
        if lost >= 1
        else f"{liars} liars among {workers} workers did averaging no harm this time "
        f"({percent(attacked.accuracy)})."
    )
    return [
        harm,
        f"With the same liars, {robust.rule} reaches {percent(robust.accuracy)}, "
        f"{nearly} averaging does with nobody lying.",
    ]


def draw(entries: Sequence[Entry], title: str, path: Path) -> None:
    """The accuracies over steps, each curve with its name at its end."""
    figure = matplotlib().figure.Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    last = max(int(entry.summary["total_steps"]) for entry in entries)
    for entry, colour, mark in zip(entries, COLOURS, _MARKS, strict=False):
        steps = [0, *(point.step for point in entry.curve)]
        heights = [10.0, *(100 * point.accuracy for point in entry.curve)]
        if steps[-1] < last:  # there is no more to come
            axes.plot([steps[-1], last], [heights[-1]] * 2, color=colour, lw=2, ls=":")
            note = f"its model overflows after step {steps[-1]}"
            axes.text(steps[-1], heights[-1] - 5, note, color=colour, fontsize=9)
        axes.plot(steps, heights, color=colour, lw=2.5, marker=mark, markevery=slice(1, None))
    _name_curves(axes, entries, last)
    axes.set_xlim(0, last * 1.5)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= last])
    axes.set_ylim(0, 100)
    axes.set_xlabel("steps", color=INK, x=1 / 3)
    axes.set_ylabel("right on images never seen, %", color=INK)
    axes.plot([0, last], [10, 10], color="#bbbbbb", lw=1, ls="--")
    axes.text(last * 0.01, 11, "guessing", color="#8a8a8a", fontsize=9)
    bare(axes)
    axes.set_title(title, fontsize=13, fontweight="bold", color=INK, loc="left", pad=12)
    figure.savefig(path, dpi=130)


def _name_curves(axes: Any, entries: Sequence[Entry], last: int) -> None:
    """Beside their ends, apart from each other where the ends are near."""
    least = 11.0  # per cent of the height, for two lines of text
    order = sorted(range(len(entries)), key=lambda i: entries[i].accuracy)
    height = 0.0
    for i in order:
        entry = entries[i]
        height = max(100 * entry.accuracy, height + least if height else 6.0)
        text = f"{entry.label}: {percent(entry.summary['accuracy'])}\n{entry.rule}, {_who(entry)}"
        words = {"color": COLOURS[i % len(COLOURS)], "va": "center", "fontweight": "bold"}
        axes.text(last * 1.03, height, text, fontsize=9.5, **words)


def _who(entry: Entry) -> str:
    return f"{entry.liars} liars" if entry.liars else "nobody lies"
