"""A claim of the thesis, what we found, and whether it held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from garfield.report.plain_tables import plain_table


@dataclass(frozen=True)
class Claim:
    """One claim."""

    what: str
    there: float | str
    here: float | str
    held: bool

    def line(self) -> dict[str, Any]:
        """A line of a results file."""
        return {"what": self.what, "there": self.there, "here": self.here, "held": self.held}


def near(what: str, there: float, here: float) -> Claim:
    """A claim that is a number: it held if ours is within a quarter of it."""
    return Claim(what, there, here, abs(here / there - 1) <= 0.25)


def claims_table(claims: Sequence[Claim]) -> Table:
    """A line per claim."""
    table = plain_table("claim", "thesis", "here", "", right=3)
    for each in claims:
        mark = "[green]held[/]" if each.held else "[bold red]failed[/]"
        table.add_row(each.what, _cell(each.there), _cell(each.here), mark)
    return table


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
