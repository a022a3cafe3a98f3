"""How tables look on a terminal: no frame, a line under the headings if there are any."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table
from rich.text import Text


def plain_table(*headings: str, right: int = 0) -> Table:
    """A table with these columns, the last `right` of them for numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, heading in enumerate(headings, start=right - len(headings)):
        table.add_column(heading, justify="left" if place < 0 else "right")
    return table


def lines_table(lines: Mapping[str, str]) -> Table:
    """A line for each name that has something to tell."""
    table = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, text in lines.items():
        if text:
            table.add_row(name, Text(text))
    return table
