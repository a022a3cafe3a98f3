"""The pictures of a federated GAN: how good its images are, and what the server has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from garfield.core.events import Event
from garfield.report.drawing import (
    COLOURS,
    FAINT,
    INK,
    ORANGE,
    entitle,
    matplotlib,
    name_lines,
    save_pictures,
)
from garfield.report.fedgan_summary import FedganHistory
from garfield.report.plots import LINE, bare

_SECOND = ORANGE


def draw_fedgan(
    events: Sequence[Event], title: str, directory: Path, kind: str = "png"
) -> list[Path]:
    """Draw a run into its directory, as png, svg or pdf; the files."""
    history = FedganHistory.of(events)
    if not history.rounds:
        return []
    drawn: dict[str, Callable[[], Any]] = {
        "seen": lambda: seen(history, title),
        "traffic": lambda: traffic(history, title),
    }
    if history.judged:
        drawn["fid"] = lambda: fid({"": history}, title)
    return save_pictures(drawn, directory, kind)


def fid(histories: Mapping[str, FedganHistory], title: str) -> Any:
    """Draw the distance to real images over rounds and over time, of one run or of several."""
    figure, (left, right) = _two_panels()
    label = ""
    for colour, (name, history) in zip(cycle(COLOURS), histories.items(), strict=False):
        judged = history.judged
        values = [each["fid"] for each in judged]
        times = [history.time_s(each["round"]) for each in judged]
        style: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 3, "color": colour}
        style |= {"label": name} if name else {}
        left.plot([each["round"] for each in judged], values, **style)
        right.plot(times, values, **style)
        label = judged[-1]["fid_label"] if judged else label
    left.set_xlabel("rounds", color=INK)
    right.set_xlabel("seconds of training", color=INK)
    for axes in (left, right):
        axes.set_ylabel(label, color=INK)
        axes.set_ylim(bottom=0)
        bare(axes)
    name_lines(right)
    entitle(figure, f"How good the images are · {title}")
    return figure


def draw_seen_by_several(histories: Mapping[str, FedganHistory], directory: Path) -> list[Path]:
    """Draw several runs beside each other: what their servers saw, and FID where judged."""
    figure = matplotlib().figure.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, history) in zip(cycle(COLOURS), histories.items(), strict=False):
        rounds = [each["round"] + 1 for each in history.rounds]
        axes.plot(rounds, _kl_seen(history), linewidth=2, label=name, color=colour)
    axes.set_xlabel("rounds", color=INK)
    axes.set_ylabel("KL of classes seen from all data", color=INK)
    axes.set_ylim(bottom=0)
    name_lines(axes)
    bare(axes)
    drawn: dict[str, Callable[[], Any]] = {"seen": lambda: figure}
    if any(history.judged for history in histories.values()):
        drawn["fid"] = lambda: fid(histories, "sampling and weights, on and off")
    return save_pictures(drawn, directory)


def _kl_seen(history: FedganHistory) -> list[float]:
    """Over rounds; a gap, not a zero, where there is no such number."""
    return [math.nan if each["kl_seen"] is None else each["kl_seen"] for each in history.rounds]


def seen(history: FedganHistory, title: str) -> Any:
    """Draw the divergence of what the server saw, and the samples of each class."""
    figure, (left, right) = _two_panels()
    rounds = [each["round"] + 1 for each in history.rounds]
    left.plot(rounds, _kl_seen(history), color=LINE, linewidth=2)
    left.set_ylabel("KL of classes seen from all data", color=INK)
    left.set_ylim(bottom=0)
    per_class = list(zip(*(each["seen"] for each in history.rounds), strict=True))
    for counts in per_class:
        right.plot(rounds, counts, color=FAINT, linewidth=1)
    mean = [sum(each["seen"]) / len(each["seen"]) for each in history.rounds]
    right.plot(rounds, mean, color=LINE, linewidth=2, label="mean of all classes")
    right.set_ylabel("declared samples of a class, seen so far", color=INK)
    right.set_ylim(bottom=0)
    name_lines(right)
    for axes in (left, right):
        axes.set_xlabel("rounds", color=INK)
        bare(axes)
    entitle(figure, f"What the server has seen · {title}")
    return figure


def traffic(history: FedganHistory, title: str) -> Any:
    """Draw the bytes of learning state sent to and by a device, on average and at most."""
    figure = matplotlib().figure.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rounds = [each["round"] + 1 for each in history.rounds]
    for key, words, colour in (
        ("most_bytes_of_a_device", "the most of a device", _SECOND),
        ("bytes_per_device", "a device on average", LINE),
    ):
        values = [each[key] / 1e6 for each in history.rounds]
        axes.plot(rounds, values, color=colour, linewidth=2, label=words)
    axes.set_xlabel("rounds", color=INK)
    axes.set_ylabel("MB so far", color=INK)
    axes.set_ylim(bottom=0)
    name_lines(axes)
    bare(axes)
    entitle(figure, f"Bytes per device · {title}")
    return figure


def _two_panels() -> tuple[Any, Any]:
    figure = matplotlib().figure.Figure(figsize=(10, 4), layout="constrained")
    figure.get_layout_engine().set(wspace=0.08)
    return figure, figure.subplots(1, 2)
