"""The directory that a run leaves behind.

    config.toml      all settings as used; `garfield train --config` runs them again
    metrics.jsonl    what nodes told, a JSON object a line, in the order it was heard
    checkpoints/     what `garfield train --resume` goes on from; made with the first of them
    summary.json     what came of it, and the pictures beside it
    metrics.csv      and tensorboard/, with --log: `event_logs`

A resumed run appends to the same metrics, after a line that says from which step:
what was told of later steps before that line was lost, and is passed over. So is a line that
was cut short when the machine went down, or the disk was full.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from garfield.core.config import as_toml
from garfield.core.errors import ConfigError, RunError
from garfield.core.events import Event
from garfield.core.files import as_json, write_json, write_text

if TYPE_CHECKING:
    from garfield.runs.event_logs import EventLogs

_log = logging.getLogger(__name__)


def new_path(what: str) -> Path:
    """A directory named after now, that is not there yet."""
    first = Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-{what}"
    several = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], several) if not path.exists())


class RunDirectory:
    """Written to while a run goes on. Use as a context: leaving it closes the metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics: TextIO | None = None
        self._is_full = False
        self._logs: EventLogs | None = None

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
        if self.path.is_dir() and any(not _is_partial(path) for path in self.path.iterdir()):
            raise ConfigError(
                f"{self.path} is not empty. Choose another --out, or go on with that run: "
                f"--resume {self.path}"
            )

    def check_old(self) -> None:
        """Refuse what is no run."""
        if not self.config.is_file():
            raise ConfigError(f"{self.path} holds no run: it has no {self.config.name}.")

    def open(self, settings: Mapping[str, Any], logs: Sequence[str] = ()) -> None:
        """Write the config, and be ready for events, which go to the logs by these names too."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.config, as_toml(settings))  # first: it says that this is a run
            self._metrics = self.metrics.open("a", encoding="utf-8", buffering=1)
            if _is_cut(self.metrics):
                self._metrics.write("\n")
        except OSError as problem:
            raise ConfigError(f"{self.path} cannot be written to: {problem.strerror}.") from None
        if logs:
            from garfield.runs.event_logs import EventLogs

            self._logs = EventLogs(logs, self.path, settings)

    def record(self, event: Event) -> None:
        """Append an event to the metrics; RunError the first time that this is impossible."""
        assert self._metrics is not None  # open() comes first
        if self._is_full:
            return
        line = as_json(event)
        _log.info("%s", line)
        try:
            self._metrics.write(line + "\n")
        except OSError as problem:
            self._is_full = True
            raise _unwritable(self.metrics, problem) from None
        if self._logs is not None:
            self._logs.take(event)

    def events(self) -> list[Event]:
        """All that was recorded, former parts of a resumed run included."""
        return list(_read(self.metrics)) if self.metrics.is_file() else []

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write what came of the run; RunError if that is impossible."""
        try:
            write_json(self.summary, summary)
        except OSError as problem:
            raise _unwritable(self.summary, problem) from None
        if self._logs is not None:
            self._logs.summarise(summary)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        if self._metrics is not None:
            with suppress(OSError):  # of a full disk: record() has told
                self._metrics.close()
        if self._logs is not None:
            self._logs.close(self.events)


def _unwritable(path: Path, problem: OSError) -> RunError:
    return RunError(
        f"{path} cannot be written to: {problem.strerror or problem}. Make room there, and resume."
    )


def _is_partial(path: Path) -> bool:
    """Whether it is left of a file whose writer was killed."""
    return path.name.startswith(".") and path.suffix == ".part"


def _is_cut(path: Path) -> bool:
    """Whether the last line has no end."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"


def _read(path: Path) -> Iterator[Event]:
    with path.open("rb") as lines:  # bytes: a line may be cut within a character
        for line in lines:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut short when the machine went down, or not ours
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                yield event
