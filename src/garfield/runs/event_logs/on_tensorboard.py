"""TensorBoard: curves of every server, drawn over each other by the names of their fields.

Written by tensorboardX, which needs numpy, packaging and protobuf alone; the package
`tensorboard` would bring a web server into every training. Look at them with
`tensorboard --logdir RUN/tensorboard`, or at all runs with `--logdir runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from garfield.core.events import Event
from garfield.core.files import as_json
from garfield.runs.event_logs.contract import curves, place_of

FOLDER = "tensorboard"
_FLUSH_S = 5  # a reader may look on


class TensorBoard:
    """One folder for each node that tells of itself, so that their curves share a chart."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._settings = directory / FOLDER, settings
        self._writers: dict[str, SummaryWriter] = {}
        self._resumed_at: int | None = None

    def take(self, event: Event) -> None:
        """Add a point to the curve of each number."""
        if event["event"] == "resumed":
            self._resumed_at = place_of(event)
        found = curves(event)
        if found:
            writer = self._writer(str(event.get("node", "")))
            for name, value in found.items():
                writer.add_scalar(name, value, place_of(event))

    def close(self, events: Callable[[], Sequence[Event]]) -> None:
        """Write what is left."""
        for writer in self._writers.values():
            writer.close()

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Curves hold no summary."""

    def _writer(self, node: str) -> SummaryWriter:
        if node not in self._writers:
            again = None if self._resumed_at is None else self._resumed_at + 1
            made = SummaryWriter(str(self._folder / node), purge_step=again, flush_secs=_FLUSH_S)
            if not self._writers:
                made.add_text("settings", f"```\n{as_json(self._settings, indent=2)}\n```")
            self._writers[node] = made
        return self._writers[node]
