"""MLflow: a run with all settings as parameters, curves as metrics, and the summary's numbers.

Goes to the server that MLFLOW_TRACKING_URI names, or else into `mlruns/` beside the run's
directory, so that runs kept side by side are compared in one table. A resumed run goes on in the
run that `mlflow.json` names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.core.events import Event
from garfield.core.files import write_json
from garfield.runs.event_logs.contract import curves, numbers, place_of

FOLDER = "mlruns"
RECORD = "mlflow.json"
EXPERIMENT = "garfield"
_AT_ONCE = 500  # metrics of one request; MLflow takes a thousand
_EVERY_S = 2.0


class MLflow:
    """Metrics are sent now and then, many at once: each request to a server takes its time."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        where = os.environ.get("MLFLOW_TRACKING_URI")
        if where is None:  # MLflow wants to hear that files are meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            where = (directory.absolute().parent / FOLDER).as_uri()
        import mlflow

        self._client = mlflow.MlflowClient(tracking_uri=where)
        self._metric, self._parameter = mlflow.entities.Metric, mlflow.entities.Param
        self._waiting: list[Any] = []
        self._sent_at = time.monotonic()
        self._run = self._begun(directory, where, settings)

    def take(self, event: Event) -> None:
        """Add a point to the curve of each number; send them if it is time to."""
        self._add(f"{event['node']}/" if "node" in event else "", curves(event), place_of(event))
        if len(self._waiting) >= _AT_ONCE or time.monotonic() - self._sent_at > _EVERY_S:
            self._send()

    def close(self, events: Callable[[], Sequence[Event]]) -> None:
        """Send what is left, and end the run."""
        self._send()
        self._client.set_terminated(self._run)

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Add the summary's numbers, under their own names; a run that failed is marked so."""
        given = summary.get("settings", {})  # these are parameters
        self._add("", {k: v for k, v in numbers(summary).items() if k not in given}, 0)
        self._send()
        if summary.get("failed") or summary.get("failure"):
            self._client.set_terminated(self._run, "FAILED")
        elif summary.get("interrupted"):
            self._client.set_terminated(self._run, "KILLED")

    def _begun(self, directory: Path, where: str, settings: Mapping[str, Any]) -> str:
        record = directory / RECORD
        if record.is_file():
            run = str(json.loads(record.read_text(encoding="utf-8"))["run"])
            self._client.update_run(run, "RUNNING")
            return run
        known = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
        begun = self._client.create_run(experiment, run_name=directory.name)
        run = str(begun.info.run_id)
        given = [self._parameter(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(run, params=given)
        write_json(record, {"tracking_uri": where, "run": run})
        return run

    def _add(self, prefix: str, found: Mapping[str, float], step: int | None) -> None:
        now_ms = int(1000 * time.time())
        self._waiting += [
            self._metric(f"{prefix}{name}", value, now_ms, step or 0)
            for name, value in found.items()
        ]

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        while self._waiting:
            now, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            self._client.log_batch(self._run, metrics=now)
