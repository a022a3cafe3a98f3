"""Where a model could be cut, as a table and as a picture: what `garfield split plan` shows.

A row per place to cut, the plain stream of images first: what leaves the layer, what it costs, and
whether less travels than is stored. The picture is that of the thesis's Figures 5.3 to 5.5, with
the stored input as a line and the chosen cut marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from garfield.report.drawing import matplotlib
from garfield.report.heatmap import check
from garfield.report.tables import duration

_GREEN, _GREY, _RED, _BLUE = "#1a7f4b", "#b8b8b8", "#c9302c", "#2b6cb0"


@dataclass(frozen=True)
class SplitRow:
    """One place to cut."""

    split: int
    """How many layers would run at the server."""
    layer: str
    """The last of them."""
    shape: tuple[int, ...]
    output_bytes: float
    """What travels for one sample."""
    forward_s: float | None
    """Seconds of that layer for one sample; None: not measured."""
    memory_bytes: int | None
    """What one sample adds to memory while it runs; None: not measured."""
    candidate: bool
    """Less travels than is stored."""
    chosen: bool
    bytes_per_iteration: float
    iteration_s: float | None = None
    """Predicted seconds of an iteration."""
    bound_by: str | None = None
    """server, link or client: the slowest of the three."""
    epoch_cost: float | None = None
    """What the provider would charge for the bytes of an epoch, in dollars."""


@dataclass(frozen=True)
class PlanFacts:
    """What a plan is about."""

    model: str
    batch: int
    bandwidth_bps: float
    stored_bytes: float
    """Of one sample, as it is stored."""
    input_bytes: int
    """Of one sample, as a float32 tensor."""
    planner: str
    why: str
    frozen_layer: str
    """The last frozen one."""


def plan_table(facts: PlanFacts, rows: Sequence[SplitRow]) -> Table:
    """A line per place to cut; the chosen one is marked, candidates are green."""
    timed = any(row.iteration_s is not None for row in rows)
    priced = any(row.epoch_cost is not None for row in rows)
    headings = ["", "split", "layer", "output", "a sample", "compute", "memory", "candidate"]
    headings += [f"batch of {facts.batch:,}"]
    headings += ["iteration", "bound by"] * timed + ["epoch's egress"] * priced
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        left = heading in ("", "layer", "output", "candidate", "bound by")
        table.add_column(heading, justify="left" if left else "right")
    for row in rows:
        cells = [
            "→" if row.chosen else "",
            str(row.split),
            row.layer,
            "×".join(map(str, row.shape)),
            size(row.output_bytes),
            "–" if row.forward_s is None else duration(row.forward_s),
            "–" if row.memory_bytes is None else size(row.memory_bytes),
            "yes" if row.candidate else "" if row.split == 0 else "no",
            size(row.bytes_per_iteration),
        ]
        if timed:
            cells.append("–" if row.iteration_s is None else duration(row.iteration_s))
            cells.append(row.bound_by or "–")
        if priced:
            cells.append("–" if row.epoch_cost is None else f"${row.epoch_cost:,.4f}")
        style = "bold green" if row.chosen else "" if row.candidate or row.split == 0 else "dim"
        table.add_row(*(Text(cell, style) for cell in cells))
    return table


def plan_caption(facts: PlanFacts, rows: Sequence[SplitRow]) -> str:
    """The decision in words, and whether it is worth having a server at all."""
    chosen = next(row for row in rows if row.chosen)
    streamed = rows[0]
    link = f"{facts.bandwidth_bps / 1e6:,.6g} Mbps"
    told = [f"{facts.planner} at {link}: split {chosen.split}"]
    if chosen.split:
        told[0] += f", behind {chosen.layer} (the thesis's index {chosen.split - 1})"
    told[0] += f". Why: {facts.why}."
    if chosen.split == 0:
        told.append(
            "Do not use this here: streaming the stored images is as good as any split, up to the "
            f"last frozen layer ({facts.frozen_layer})."
        )
    else:
        ratio = streamed.bytes_per_iteration / chosen.bytes_per_iteration
        told.append(f"{ratio:.1f} times fewer bytes travel than with the images as stored.")
    if chosen.split and chosen.iteration_s is not None and streamed.iteration_s is not None:
        ratio = streamed.iteration_s / chosen.iteration_s
        told.append(
            f"An iteration is predicted to take {duration(chosen.iteration_s)} instead of "
            f"{duration(streamed.iteration_s)} ({ratio:.2f}×), bound by the {chosen.bound_by}."
        )
        if ratio < 1.05:
            told.append("Do not use this here for speed: it is predicted to gain next to nothing.")
    return " ".join(told)


def plan_json(facts: PlanFacts, rows: Sequence[SplitRow]) -> dict[str, Any]:
    """The same for scripts."""
    chosen = next(row for row in rows if row.chosen)
    return {**asdict(facts), "split": chosen.split, "splits": [asdict(row) for row in rows]}


def draw_plan(facts: PlanFacts, rows: Sequence[SplitRow], path: Path) -> None:
    """Bars for what leaves each layer, its time and its memory; the file's ending says the kind."""
    check(path)
    layers = [row for row in rows if row.split]
    panels = [("what leaves a layer, KB a sample", [row.output_bytes / 1e3 for row in layers])]
    if layers and all(row.forward_s is not None for row in layers):
        panels.append(("compute, ms a sample", [1e3 * (row.forward_s or 0) for row in layers]))
    if layers and all(row.memory_bytes is not None for row in layers):
        panels.append(("memory, MB a sample", [(row.memory_bytes or 0) / 1e6 for row in layers]))
    width = max(6.0, 1.8 + 0.34 * len(layers))
    figure = matplotlib().figure.Figure(figsize=(width, 1.2 + 2.3 * len(panels)))
    figure.set_layout_engine("constrained")
    every_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    colours = [_RED if row.chosen else _GREEN if row.candidate else _GREY for row in layers]
    for axes, (label, heights) in zip(every_axes, panels, strict=True):
        axes.bar(range(len(layers)), heights, color=colours)
        axes.set_ylabel(label, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    first = every_axes[0]
    first.set_yscale("log")
    for height, name in ((facts.stored_bytes, "stored"), (facts.input_bytes, "float32")):
        first.axhline(height / 1e3, color=_BLUE, linewidth=1, linestyle="--")
        first.annotate(name, (len(layers) - 0.4, height / 1e3), fontsize=8, color=_BLUE)
    names = [f"{row.split}  {row.layer}" for row in layers]
    every_axes[-1].set_xticks(range(len(layers)), names, rotation=60, ha="right", fontsize=8)
    chosen = next(row for row in rows if row.chosen)
    where = f"cut behind {chosen.layer}" if chosen.split else "no cut: images are streamed"
    first.set_title(
        f"{facts.model}, batch {facts.batch:,}, {facts.bandwidth_bps / 1e6:,.6g} Mbps: {where} "
        "(red chosen, green smaller than stored)",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


def size(count: float) -> str:
    """Bytes in words, by thousands, as links and bills count them."""
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= many:
            return (
                f"{count / many:.3g} {unit}"
                if count < 999.5 * many
                else f"{count / many:,.0f} {unit}"
            )
    return f"{count:.0f} B"
