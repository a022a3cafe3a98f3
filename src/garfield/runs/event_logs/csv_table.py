"""metrics.csv: one row an event, one column a field that is a number, a word or yes and no.

Written when the run ends, as only then all columns are known. What was told of steps that a
resumed run did again is left out, as everywhere.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.core.events import Event
from garfield.core.files import replacing
from garfield.runs.event_logs.contract import place_of

FILE = "metrics.csv"
_FIRST = ("event", "node", "step", "round", "time_s")


class CsvTable:
    """Writes the table of a run."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self._path = directory / FILE

    def take(self, event: Event) -> None:
        """Wait for the end."""

    def close(self, events: Callable[[], Sequence[Event]]) -> None:
        """Write the table of all events."""
        rows = [_scalars(event) for event in _kept(events())]
        found = dict.fromkeys(name for row in rows for name in row)
        columns = [name for name in _FIRST if name in found]
        columns += [name for name in found if name not in _FIRST]
        with (
            replacing(self._path) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            table = csv.DictWriter(file, columns, restval="")
            table.writeheader()
            table.writerows(rows)

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """A table of events holds no summary."""


def _kept(events: Sequence[Event]) -> list[Event]:
    """All events but those of steps that were done again after a resumption."""
    kept: list[Event] = []
    for event in events:
        if event["event"] == "resumed":
            start = place_of(event) or 0
            kept = [each for each in kept if (place_of(each) or 0) <= start]
        kept.append(event)
    return kept


def _scalars(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.items() if isinstance(value, (str, int, float))}
