"""What Prometheus is told: the cluster, every job, and the operator's own work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from garfield.core.errors import MissingDependency
from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.policy.snapshot import Node

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
except ImportError:
    raise MissingDependency(
        "Metrics need prometheus-client, which is not installed. Install it with: "
        "pip install 'garfield-ml[elastic-kubernetes]'"
    ) from None

_PREFIX = "garfield_elastic"


class Metrics:
    """Numbers of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gpus = self._gauge("gpus", "GPUs that jobs may have.")
        self._given = self._gauge("gpus_given", "GPUs that jobs were given.")
        self._jobs = self._gauge("jobs", "Jobs by phase.", "phase")
        self._workers = self._gauge("job_workers", "Workers that a job was given.", "job")
        self._batch = self._gauge("job_batch", "Samples of each worker at a time.", "job")
        self._step = self._gauge("job_step", "The last step that a worker told.", "job")
        self._speed = self._gauge("job_samples_per_second", "Throughput of the whole job.", "job")
        self._leads = self._gauge("leader", "1 while this operator leads.")
        self._decisions = Counter(
            f"{_PREFIX}_decisions", "Decisions taken.", ["asked"], registry=self.registry
        )
        self._changes = Counter(
            f"{_PREFIX}_changes", "What decisions changed.", ["change"], registry=self.registry
        )
        self._failures = Counter(
            f"{_PREFIX}_failed_turns", "Turns that ended in an error.", registry=self.registry
        )
        self.turn = Histogram(
            f"{_PREFIX}_turn_seconds", "Seconds of a turn of the loop.", registry=self.registry
        )

    def serve(self, host: str, port: int) -> Any:
        """Answer GET /metrics; the server, to be shut down."""
        server, _ = start_http_server(port, host, self.registry)
        return server

    def leads(self, is_leader: bool) -> None:
        self._leads.set(is_leader)

    def decided(self, asked: str) -> None:
        self._decisions.labels(asked).inc()

    def changed(self, change: str) -> None:
        self._changes.labels(change).inc()

    def turn_failed(self) -> None:
        self._failures.inc()

    def cluster(self, nodes: Iterable[Node], records: Iterable[JobRecord]) -> None:
        """Show a turn's outcome; jobs that are gone are shown no more."""
        records = list(records)
        self._gpus.set(sum(node.gpus for node in nodes))
        self._given.set(sum(record.job.workers for record in records))
        for phase in Phase:
            self._jobs.labels(phase.value).set(sum(record.phase is phase for record in records))
        for gauge in (self._workers, self._batch, self._step, self._speed):
            gauge.clear()
        for record in records:
            if record.is_active:
                self._workers.labels(record.name).set(record.job.workers)
                self._batch.labels(record.name).set(record.job.batch)
                self._step.labels(record.name).set(record.farthest_step)
                if record.job.latest is not None:
                    self._speed.labels(record.name).set(record.job.latest.throughput)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", about, labels, registry=self.registry)
