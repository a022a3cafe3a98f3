"""Several ways of one fine-tuning side by side: time, bytes, accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from garfield.report.plain_tables import plain_table
from garfield.report.split_summary import size

Summaries = Mapping[str, Mapping[str, Any]]
"""Summaries of runs by what they show; the first is what the others are compared with."""


def comparison_table(runs: Summaries) -> Table:
    """A line per run."""
    headings = ("split", "time", "received", "per iteration", "weights put", "right")
    table = plain_table("", *headings, right=len(headings))
    for name, summary in runs.items():
        table.add_row(
            name,
            str(summary["split"]),
            f"{summary['time_s']:.1f} s",
            size(summary["received_bytes"]),
            size(summary["bytes_per_iteration"] or 0),
            size(summary["uploaded_bytes"]) if summary["uploaded_bytes"] else "–",
            f"{100 * summary['accuracy']:.1f} %",
        )
    return table


def comparison_sentences(runs: Summaries) -> list[str]:
    """What the numbers say, in words; also where the first run was the better one."""
    (first, base), *others = runs.items()
    told = []
    for name, summary in others:
        faster = base["time_s"] / summary["time_s"]
        less = base["received_bytes"] / max(1, summary["received_bytes"])
        time = f"{faster:.1f} times faster" if faster >= 1 else f"{1 / faster:.1f} times slower"
        bytes_ = (
            f"{less:.0f} times fewer bytes" if less >= 1 else f"{1 / less:.1f} times more bytes"
        )
        told.append(f"{name}: {time} than {first.partition(':')[0]}, with {bytes_}.")
    return told
