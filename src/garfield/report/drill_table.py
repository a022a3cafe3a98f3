"""The table of a drill: what was done to a run, how far it was then, and what did not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table


def drill_table(outcomes: Sequence[dict[str, Any]]) -> Table:
    """One row for each fault, from the report's JSON."""
    table = Table(box=None, pad_edge=False)
    table.add_column("what was done")
    table.add_column("all went on at step", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("held")
    for each in outcomes:
        wrong = "\n".join(f"{v['broken']}: {v['detail']}" for v in each["violations"])
        held = wrong.replace("[", r"\[") or "yes"
        table.add_row(each["what"], str(each["step"]), f"{each['took_s']:.1f}", held)
    return table
