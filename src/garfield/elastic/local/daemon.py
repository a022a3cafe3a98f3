"""The daemon of a local cluster: a process that runs its `Controller` until it is told to end.

All that it knows is in the cluster's database. Killed, it leaves jobs that train on, and the next
one adopts them; told to end, it ends all workers, and jobs go on from checkpoints with the next.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from garfield.core.config import made, values_of
from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.job.environment import environment_of
from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.controller import Controller
from garfield.elastic.local.database import KeptJob, KeptWorker
from garfield.elastic.local.events import ClusterEvents
from garfield.elastic.local.job_workers import JobWorkers
from garfield.elastic.local.processes import WorkerProcesses
from garfield.elastic.local.settings import LocalSettings
from garfield.elastic.local.slots import slot_groups
from garfield.elastic.local.worker_process import WorkerTask
from garfield.elastic.policy.decision import Share
from garfield.runs.run_directory import RunDirectory

_log = logging.getLogger("garfield.elastic.local")
_TICK_S = 0.1


class Daemon:
    """One cluster, as long as this process runs it. Use as a context; the lock is held inside."""

    def __init__(
        self, cluster: Cluster, settings: LocalSettings, config: Mapping[str, Any] | None = None
    ) -> None:
        """`config` is what to keep for the next start, if that is not the settings."""
        self._cluster, self._settings = cluster, settings
        self._config = values_of(settings) if config is None else config
        self._is_told_to_end = False

    def __enter__(self) -> Daemon:
        settings, path = self._settings, self._cluster.path
        self._lock = self._cluster.lock()
        self._database = self._cluster.database(create=True)
        self._database.slots = settings.slots
        self._directory = RunDirectory(path)
        self._directory.open(self._config)
        self._events = ClusterEvents(self._directory)
        self._groups = slot_groups(path, settings.cpus)
        self._processes = WorkerProcesses(self._cluster.processes)
        self._controller = Controller(
            settings, self._database, self._processes, self._events, self._job
        )
        self._controller.adopt()
        self._cluster.set_daemon(self._database)
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._controller.jobs.values():
            job.close()
        self._directory.__exit__()
        self._database.close()
        self._lock.close()

    def run(self) -> None:
        """Run until told to end by SIGTERM or Ctrl-C; then end all workers, their jobs kept."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        held = "paced" if self._groups is None else self._groups.version.value
        _log.info("%d slots of %.2g cores, %s.", self._settings.slots, self._settings.cpus, held)
        is_reachable = True
        while not self._is_told_to_end:
            try:
                self._controller.tick()
                is_reachable = True
            except CoordinationUnreachable as problem:
                if is_reachable:
                    _log.warning("%s Jobs go on as they are.", problem)
                is_reachable = False
            self._processes.wait(_TICK_S)
        self.go_down()

    def go_down(self) -> int:
        """End all workers; jobs are kept, and go on from their checkpoints. How many ended."""
        _log.info("Going down: %d workers are to end.", len(self._processes))
        codes = self._processes.end_all(self._settings.grace_s)
        at_s, jobs = self._database.now_s(), self._controller.jobs.values()
        for job in jobs:
            job.look()
            self._controller.measure([job])
            if job.record.is_active and job.is_finishing:
                job.record = job.done(at_s)
            elif job.record.job.workers:
                share = Share(0, job.record.job.batch, reason="the cluster went down")
                job.record = job.record.given(share, at_s)
            job.forget_all()
            self._events.tell_workers(job, at_s)
            if not job.record.is_active:
                self._events.tell_end(job)
        self._database.save(job.record for job in jobs)
        self._cluster.set_daemon(self._database, runs=False)
        if self._groups is not None:
            self._groups.close()
        _log.info("%d workers ended.", len(codes))
        return len(codes)

    def _end(self, *_: object) -> None:
        self._is_told_to_end = True

    def _job(self, kept: KeptJob) -> JobWorkers:
        agreement = self._cluster.agreement_of(kept.number)
        return JobWorkers(
            kept, self._database, self._processes, agreement, self._settings.grace_s, self._start
        )

    def _start(self, job: JobWorkers, worker: KeptWorker) -> None:
        """Start the process of a worker in its slot."""
        settings, file = self._settings, job.kept.file
        threads = str(settings.threads)
        checkpoints = self._cluster.checkpoints_of(job.number)
        environment = {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "PYTHONUNBUFFERED": "1",  # logs are read while they are written
            **file.variables,
            **environment_of(job.agreement, worker.member, checkpoints),
        }
        group = None if self._groups is None else str(self._groups.slot(worker.slot))
        task = WorkerTask(
            file.command, file.directory, environment, settings.cpus, group, settings.memory_bytes
        )
        self._processes.start(job.process_of(worker.member), task)


def take_down(cluster: Cluster) -> int:
    """End what a daemon that was killed has left; how many workers."""
    config = cluster.last_config()
    # no policy is asked any more, and a user's own may not be loaded here
    settings = made(LocalSettings, {**config, "policy": LocalSettings.policy})
    with Daemon(cluster, settings, config) as daemon:
        return daemon.go_down()


def serve(path: Path, settings: LocalSettings) -> None:
    """Be the daemon of the cluster in that directory until told to end."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    with Daemon(Cluster(path), settings) as daemon:
        daemon.run()
