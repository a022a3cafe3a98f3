"""The cost of every split of a model, as a table and as a picture (thesis, Figures 5.3 to 5.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from rich.table import Table
from rich.text import Text

from garfield.report.drawing import matplotlib
from garfield.report.heatmap import check
from garfield.report.plain_tables import plain_table
from garfield.report.plots import FAINT, INK, bare
from garfield.report.split_summary import size
from garfield.report.tables import duration

_LAYER, _CANDIDATE, _CHOSEN, _STORED = "#b9c3cf", "#2563a8", "#2a9d63", "#c9302c"


Costs: TypeAlias = Any
"""What is shown: a `garfield.split.plan_view.PlanView`, which stands above this layer."""


def costs_headline(found: Costs) -> str:
    """What was asked, in a line."""
    return (
        f"{found.model}, frozen up to layer {found.freeze}, batch {found.batch}, images of "
        f"{size(found.stored_bytes)} stored as {found.stored_as}, "
        f"{found.bandwidth_bps / 1e6:,.4g} Mbps"
    )


def costs_table(found: Costs) -> Table:
    """A line per split; the chosen one is marked, those behind the frozen layers are faint."""
    table = plain_table(
        "", "split", "last layer there", "output", "time", "memory", "candidate", "an iteration",
        "takes", "bound by", "egress an epoch", right=8,
    )  # fmt: skip
    table.columns[1].justify = "right"
    for row in found.rows:
        chosen = row.split == found.split
        style = "bold green" if chosen else "" if row.frozen else "dim"
        cells = (
            "→" if chosen else "",
            str(row.split),
            row.layer,
            size(row.output_bytes),
            "–" if row.forward_s is None else duration(row.forward_s),
            "–" if row.memory_bytes is None else size(row.memory_bytes),
            "yes" if row.candidate else "trained" if not row.frozen else "",
            size(row.bytes_per_iteration) if row.frozen else "",
            "" if row.iteration_s is None else duration(row.iteration_s),
            row.bound_by or "",
            f"{row.epoch_cost:,.2f}" if row.frozen else "",
        )
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table


def draw_costs(found: Costs, path: Path) -> None:
    """Draw output size, time and memory of every layer, each on its own axes."""
    check(path)
    rows = found.rows
    figure = matplotlib().figure.Figure(
        figsize=(max(8.0, 0.42 * len(rows) + 2), 8.5), layout="constrained"
    )
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    places = range(len(rows))
    colours = [_colour(row, found.split) for row in rows]
    top.bar(places, [row.output_bytes / 1e3 for row in rows], color=colours, width=0.75)
    top.axhline(found.stored_bytes / 1e3, color=_STORED, linewidth=1.2, linestyle="--")
    top.text(
        len(rows) - 0.4, found.stored_bytes / 1e3, f"stored ({found.stored_as})",
        color=_STORED, ha="right", va="bottom", fontsize=9,
    )  # fmt: skip
    top.set_yscale("log")
    top.minorticks_off()
    top.set_ylabel("kB that travel\nfor a sample", color=INK)
    times = [1e3 * (row.forward_s or 0.0) for row in rows]
    middle.bar(places, times, color=colours, width=0.75)
    middle.set_ylabel("ms of the layer\nfor a sample", color=INK)
    memory = [(row.memory_bytes or 0) / 1e6 for row in rows]
    bottom.bar(places, memory, color=colours, width=0.75)
    bottom.set_ylabel("MB that a sample\nadds to the peak", color=INK)
    for axes in (top, middle, bottom):
        bare(axes)
        axes.axvline(found.freeze + 1.5, color=FAINT, linewidth=1, linestyle=":")
    names = [f"{row.split} {row.layer}" for row in rows]
    bottom.set_xticks(list(places), names, rotation=60, ha="right", fontsize=8)
    bottom.set_xlim(-0.7, len(rows) - 0.3)
    patch = matplotlib().patches.Patch
    handles = [
        patch(color=_CHOSEN, label=f"chosen: {found.why}"),
        patch(color=_CANDIDATE, label="sends less than is stored"),
        patch(color=_LAYER, label="others; right of the dotted line layers train"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1, frameon=False, fontsize=9)
    figure.suptitle(costs_headline(found), fontsize=11, fontweight="bold", color=INK)
    figure.savefig(path, dpi=120)


def _colour(row: Any, split: int) -> str:
    if row.split == split:
        return _CHOSEN
    return _CANDIDATE if row.candidate else _LAYER
