"""Recorded decisions beside those taken again, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from rich.table import Table

from garfield.report.plain_tables import plain_table

Replayed: TypeAlias = Any
"""What is shown: a `garfield.elastic.policy.decision_log.Replayed`, from above this layer."""

_MOST_JOBS = 4


def replay_table(found: Sequence[Replayed]) -> Table:
    """A line for each decision that differs, or one that says that none does."""
    table = plain_table("at, s", "asked", "jobs", "recorded → now: workers × batch")
    for each in found:
        if not each.agrees:
            table.add_row(f"{each.at_s:,.0f}", each.asked, str(len(each.differing)), _told(each))
    if not table.rows:
        table.add_row("all", "", "0", "the same")
    return table


def _told(each: Replayed) -> str:
    parts = [
        f"{name} {_size(old)} → {_size(new)}"
        for name, (old, new) in list(each.differing.items())[:_MOST_JOBS]
    ]
    more = len(each.differing) - len(parts)
    return ", ".join(parts) + (f", and {more} more" if more else "")


def _size(share: Any) -> str:
    return f"{share.workers}×{share.batch}" if share.workers else "0"
