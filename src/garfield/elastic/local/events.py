"""What a cluster tells of its jobs, a line each in its `metrics.jsonl`; `history` reads them."""

from __future__ import annotations

import logging
from typing import Any

from garfield.core.errors import RunError
from garfield.core.events import Event
from garfield.elastic.local.job_workers import JobWorkers
from garfield.runs.run_directory import RunDirectory

_log = logging.getLogger("garfield.elastic.local")


class ClusterEvents:
    """Written while the daemon runs. A full disk is told once, and ends no job."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._workers: dict[int, int] = {}
        self._training: set[int] = set()

    def record(self, event: Event) -> None:
        """Keep an event."""
        try:
            self._directory.record(event)
        except RunError as problem:
            _log.warning("%s", problem)

    def tell(self, job: JobWorkers, event: str, at_s: float, **what: Any) -> None:
        """Keep an event of a job."""
        named = {"event": event, "job": job.name, "number": job.number, "at_s": at_s}
        self.record({**named, **what})

    def tell_workers(self, job: JobWorkers, at_s: float) -> None:
        """Keep how many processes a job has, whenever that changes."""
        count = len(job.alive)
        if self._workers.get(job.number, 0) != count:
            self._workers[job.number] = count
            self.tell(job, "workers", at_s, workers=count)

    def tell_training(self, job: JobWorkers, at_s: float) -> None:
        """Keep when a job's workers first said that they train."""
        if job.number not in self._training and job.is_training:
            self._training.add(job.number)
            self.tell(job, "training", at_s)

    def tell_end(self, job: JobWorkers) -> None:
        """Keep what came of a job."""
        record = job.record
        self.tell(
            job, "ended", record.since_s, phase=record.phase.value, jct_s=record.completion_s(),
            queueing_s=record.queueing_s(record.since_s), rescalings=record.job.rescalings,
            why=record.why,
        )  # fmt: skip
        _log.info("%s has %s: %s", job.name, record.phase.value, record.why)
