"""The directory that a run leaves behind.

    config.toml      all settings as used; `garfield train --config` runs them again
    metrics.jsonl    what nodes told, a JSON object a line, in the order it was heard
    checkpoints/     what `garfield train --resume` goes on from
    summary.json     what came of it, and the pictures beside it

A resumed run appends to the same metrics, after a line that says from which step:
what was told of later steps before that line was lost, and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from garfield.core.config import as_toml
from garfield.core.errors import ConfigError
from garfield.core.events import Event
from garfield.core.files import as_json, write_json, write_text


class RunDirectory:
    """Written to while a run goes on. Use as a context: leaving it closes the metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics: TextIO | None = None

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    def check_new(self) -> None:
        """Refuse to write over what is there."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file. Give --out a directory.")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise ConfigError(
                f"{self.path} is not empty. Choose another --out, or go on with that run: "
                f"--resume {self.path}"
            )

    def check_old(self) -> None:
        """Refuse to resume what is no run."""
        if not self.config.is_file():
            raise ConfigError(f"{self.path} holds no run to resume: it has no {self.config.name}.")

    def open(self, settings: Mapping[str, Any]) -> None:
        """Write the config, and be ready for events."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_text(self.config, as_toml(settings))
            self._metrics = self.metrics.open("a", encoding="utf-8", buffering=1)
        except OSError as problem:
            raise ConfigError(f"{self.path} cannot be written to: {problem.strerror}.") from None

    def record(self, event: Event) -> None:
        """Append an event to the metrics."""
        assert self._metrics is not None  # open() comes first
        self._metrics.write(as_json(event) + "\n")

    def events(self) -> list[Event]:
        """All that was recorded, former parts of a resumed run included."""
        return list(_read(self.metrics)) if self.metrics.is_file() else []

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary, summary)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        if self._metrics is not None:
            self._metrics.close()


def _read(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # cut short when the machine went down
