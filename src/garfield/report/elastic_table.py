"""What came of the same jobs under several policies, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from garfield.report.plain_tables import plain_table

Summaries = Mapping[str, Mapping[str, Any]]
"""The numbers of each policy by its name."""


def policies_table(summaries: Summaries) -> Table:
    """A line per policy; utilisation of GPUs is modelled, and says so."""
    headings = (
        "JCT, s", "makespan, s", "queueing, s", "samples/s", "GPUs in use", "compute*", "memory*",
        "finished", "rescalings",
    )  # fmt: skip
    table = plain_table("policy", *headings, right=len(headings))
    table.caption = "* of GPUs in use; modelled from profiles, not measured"
    table.caption_justify = "left"
    for name, each in summaries.items():
        table.add_row(
            name,
            *(_number(each[key]) for key in ("jct_s", "makespan_s", "queueing_s", "throughput")),
            *(
                _percent(each[key])
                for key in ("cluster_utilisation", "gpu_utilisation", "memory_utilisation")
            ),
            str(each["finished"]),
            "–" if each["rescalings"] is None else f"{each['rescalings']:.1f}",
        )
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
