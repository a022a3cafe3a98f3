"""The pictures of a split fine-tuning: how it learned, where time went, what was transferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.core.events import Event
from garfield.report.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    entitle,
    matplotlib,
    name_lines,
    save_pictures,
)
from garfield.report.plots import LINE, bare
from garfield.report.split_summary import SplitHistory, size

_WAIT, _COMPUTE, _SECOND = ORANGE, BLUE, GREEN


def draw_split(
    events: Sequence[Event], title: str, directory: Path, kind: str = "png"
) -> list[Path]:
    """Draw a run into its directory, as png, svg or pdf; the files."""
    history = SplitHistory.of(events)
    if not history.batches:
        return []
    pictures = {"learning": lambda: learning(history, title)}
    if not history.began.get("all_in_store"):  # else neither time nor bytes have parts
        pictures["transfer"] = lambda: transfer(history, title)
    return save_pictures(pictures, directory, kind)


def learning(history: SplitHistory, title: str) -> Any:
    """Draw the loss of every batch, and the accuracy after each epoch."""
    figure, (left, right) = _two_panels()
    steps = [batch["step"] for batch in history.batches]
    left.plot(steps, [batch["loss"] for batch in history.batches], color=LINE, linewidth=1.5)
    left.set_xlabel("iterations", color=INK)
    left.set_ylabel("loss of the batch", color=INK)
    left.set_ylim(bottom=0)
    epochs = history.epochs
    places = [of_one[0]["epoch"] + 1 for of_one in epochs]
    trained = [
        100 * sum(each["right"] for each in of_one) / sum(each["samples"] for each in of_one)
        for of_one in epochs
    ]
    right.plot(places, trained, color=FAINT, linewidth=1.5, marker="o", label="trained on")
    if history.evaluations:
        held = {each["epoch"] + 1: 100 * each["accuracy"] for each in history.evaluations}
        right.plot(
            list(held), list(held.values()), color=LINE, linewidth=2, marker="o", label="held out"
        )
    right.set_xlabel("epochs", color=INK)
    right.set_ylabel("right, %", color=INK)
    right.set_ylim(0, 100)
    right.set_xticks(places if len(places) <= 12 else places[:: len(places) // 10])
    name_lines(right)
    for axes in (left, right):
        bare(axes)
    entitle(figure, f"How it learned · {title}")
    return figure


def transfer(history: SplitHistory, title: str) -> Any:
    """Draw, for each epoch, its time and what was received, with the split above."""
    figure, (left, right) = _two_panels()
    epochs = history.epochs
    places = [of_one[0]["epoch"] + 1 for of_one in epochs]
    waited = [sum(each["wait_s"] for each in of_one) for of_one in epochs]
    computed = [sum(each["compute_s"] for each in of_one) for of_one in epochs]
    received = [sum(each["received_bytes"] for each in of_one) / 1e6 for of_one in epochs]
    left.bar(places, computed, color=_COMPUTE, width=0.7, label="computing")
    left.bar(places, waited, bottom=computed, color=_WAIT, width=0.7, label="waiting for features")
    left.set_ylabel("seconds of the epoch", color=INK)
    left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    right.bar(places, received, color=_SECOND, width=0.7)
    right.set_ylabel("MB received", color=INK)
    top = max(received)
    right.set_ylim(0, 1.2 * top or 1)
    for place, height, of_one in zip(places, received, epochs, strict=True):
        if len(places) <= 16:
            words = f"split {of_one[-1]['split']}"
            right.text(
                place, height + 0.02 * top, words, ha="center", va="bottom", fontsize=8, color=INK
            )
    for axes in (left, right):
        axes.set_xlabel("epochs", color=INK)
        axes.set_xticks(places if len(places) <= 12 else places[:: len(places) // 10])
        axes.set_xlim(places[0] - 0.7, places[-1] + 0.7)
        bare(axes)
    entitle(figure, f"Where time and bytes went · {title}")
    return figure


def draw_comparison(runs: Mapping[str, Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw the summaries of several runs side by side: time, and bytes received."""
    figure = matplotlib().figure.Figure(figsize=(10, 1.6 + 0.7 * len(runs)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(runs)
    for axes, key, words, colour in (
        (left, "time_s", "seconds", _COMPUTE),
        (right, "received_bytes", "bytes received", _SECOND),
    ):
        values = [float(runs[name][key]) for name in names]
        axes.barh(range(len(names)), values, color=colour, height=0.6)
        for row, value in enumerate(values):
            told = f"{value:.1f} s" if key == "time_s" else size(value)
            axes.text(value + 0.01 * max(values), row, told, va="center", fontsize=9, color=INK)
        axes.set_xlim(0, 1.25 * max(values))
        axes.set_xlabel(words, color=INK)
        axes.set_xticks([])
        bare(axes, grid=False)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    entitle(figure, title)
    figure.savefig(path, dpi=130)


def _two_panels() -> tuple[Any, Any]:
    figure = matplotlib().figure.Figure(figsize=(10, 4), layout="constrained")
    figure.get_layout_engine().set(wspace=0.08)
    return figure, figure.subplots(1, 2)
