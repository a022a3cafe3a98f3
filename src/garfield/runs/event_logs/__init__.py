"""Logs of a run for tools that people look at runs with, written beside its metrics.

    csv            metrics.csv, one row an event, written when the run ends
    tensorboard    tensorboard/NODE/, while it runs
    mlflow         a run at MLFLOW_TRACKING_URI, or else in mlruns/ beside the run

All of them hold numbers that `metrics.jsonl` holds too; that file is the record. What other
tools draw as curves are the fields of events that are numbers, at the step or round they tell.
A log is a courtesy: one that cannot be written any more is given up with a warning, and the run
goes on. `RunDirectory` opens them, hands them every event, and closes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from garfield.core.errors import MissingDependency, UnknownName
from garfield.core.events import Event
from garfield.runs.event_logs.contract import EventLog

_log = logging.getLogger(__name__)


class _Kind(NamedTuple):
    target: str
    """module:class, called with the run's directory and its settings."""
    package: str
    """What it needs; empty if Python is enough."""


LOGS: Mapping[str, _Kind] = {
    "csv": _Kind("csv_table:CsvTable", ""),
    "tensorboard": _Kind("on_tensorboard:TensorBoard", "tensorboardX"),
    "mlflow": _Kind("on_mlflow:MLflow", "mlflow"),
}


def check_logs(names: Sequence[str]) -> None:
    """Refuse a name that is no log's, and a log whose package is not installed."""
    for name in names:
        if name not in LOGS:
            raise UnknownName("a log", name, LOGS)
        package = LOGS[name].package
        if package and find_spec(package) is None:
            raise MissingDependency(
                f"--log {name} needs {package}, which is not installed. "
                f"Install it with: pip install 'garfield-ml[{name}]'"
            )


class EventLogs:
    """The logs of one run, none of which may end it."""

    def __init__(self, names: Sequence[str], directory: Path, settings: Mapping[str, Any]) -> None:
        check_logs(names)
        self._open: dict[str, EventLog] = {}
        for name in dict.fromkeys(names):
            module, _, kind = LOGS[name].target.partition(":")
            with self._forgiven(name):
                made = getattr(import_module(f"{__name__}.{module}"), kind)
                self._open[name] = made(directory, settings)

    def take(self, event: Event) -> None:
        """Hand an event to every log."""
        self._each(lambda log: log.take(event))

    def close(self, events: Callable[[], Sequence[Event]]) -> None:
        """End every log; `events` reads what was recorded of the run, its former parts included."""
        self._each(lambda log: log.close(events))

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Hand what came of the run to every log, which has been closed."""
        self._each(lambda log: log.summarise(summary))

    def _each(self, act: Callable[[EventLog], None]) -> None:
        for name, log in list(self._open.items()):
            with self._forgiven(name):
                act(log)

    @contextmanager
    def _forgiven(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # of a tool that is not ours: a full disk, a server gone
            self._open.pop(name, None)
            why = str(problem).strip().splitlines() or [type(problem).__name__]
            _log.warning("%s is not written to any more: %s", name, why[0][:200])
            _log.debug("Where it went wrong:", exc_info=True)
