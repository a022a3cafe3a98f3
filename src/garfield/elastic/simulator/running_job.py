"""One job of a simulation: what it has done, when it will be done, and what it reports.

Between two changes a job trains at one speed, so that its end is known and no step is simulated.
A change of workers stops it for `rescale_s`, one of the batch alone for `rebuild_s`; a batch that
does not fit its GPU is tried, fails, and is given up.

A policy sees `job`: its reports, of `report_steps` steps each, as of the last look at it, which
come `monitor_s` apart from when it started.
"""

from __future__ import annotations

import math

from garfield.elastic.policy.decision import Share
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.measurement import Measurement
from garfield.elastic.simulator.profiles import Speed
from garfield.elastic.simulator.settings import ClusterSettings
from garfield.elastic.simulator.workload import SimulatedJob

_DONE = 1e-9
"""Of the work, what rounding may leave."""


class RunningJob:
    """A job that has arrived."""

    def __init__(self, truth: SimulatedJob, arrival: int, cluster: ClusterSettings) -> None:
        self.truth = truth
        self.job = Job(truth.name, truth.request, arrival)
        self.started_s = math.nan
        self.finished_s = math.nan
        self.waited_s = 0.0
        self.gpu_s = 0.0
        """GPU-seconds that it had."""
        self.compute_s = 0.0
        """Of these, how many were spent computing (modelled)."""
        self.memory_s = 0.0
        """GPU-seconds times the part of memory in use (modelled)."""
        self.trained = 0.0
        """Samples."""
        self.ran_s = 0.0
        self._cluster = cluster
        self._left = truth.samples
        self._since_s = truth.arrives_s
        self._resumes_s = truth.arrives_s
        self._has_reported = False
        self.speed: Speed | None = None
        self._progress = 0.0

    @property
    def ends_s(self) -> float:
        """When it will be done if nothing changes."""
        if self.speed is None:
            return math.inf
        return max(self._since_s, self._resumes_s) + self._left / self._progress

    def advance(self, now_s: float) -> None:
        """Account for the time until now."""
        passed_s = now_s - self._since_s
        if self.speed is None:
            self.waited_s += passed_s
        else:
            active_s = max(0.0, now_s - max(self._since_s, self._resumes_s))
            workers = self.job.workers
            self._left -= active_s * self._progress
            self.trained += active_s * self.speed.throughput
            self.ran_s += passed_s
            self.gpu_s += passed_s * workers
            self.compute_s += active_s * workers * self.speed.compute
            self.memory_s += active_s * workers * self.speed.memory
        self._since_s = now_s

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train."""
        return self._left <= _DONE * self.truth.samples

    def finish(self, now_s: float) -> None:
        """Give up all GPUs for good."""
        self.finished_s = now_s
        self.job = self.job.given(0, self.job.batch)
        self.speed = None

    def report(self, now_s: float) -> None:
        """Report what was measured by the last look at it; once for each stay at a size."""
        if self.speed is None or self._has_reported:
            return
        looked_s = self.started_s + self._cluster.monitor_s * math.floor(
            (now_s - self.started_s) / self._cluster.monitor_s
        )
        if self._resumes_s + self._cluster.report_steps * self.speed.step_s > looked_s:
            return
        now = self.speed
        size = (self.job.workers, self.job.batch)
        self.job = self.job.measured(
            Measurement(*size, now.throughput, now.compute, now.memory, looked_s)
        )
        self._has_reported = True

    def apply(self, share: Share, now_s: float) -> None:
        """Do what was decided."""
        workers, batch = share.workers, share.batch
        pause_s = 0.0
        if batch > self.truth.profile.largest_batch:
            self.job = self.job.out_of_memory(batch)
            batch, pause_s = self.job.batch, self._cluster.rebuild_s
        if (workers, batch) == (self.job.workers, self.job.batch):
            self._resumes_s = max(self._resumes_s, now_s + pause_s) if pause_s else self._resumes_s
            return
        if workers and workers != self.job.workers and (self.job.workers or self.job.suspended):
            pause_s = self._cluster.rescale_s
        elif workers and self.job.workers:
            pause_s = self._cluster.rebuild_s
        if workers and math.isnan(self.started_s):
            self.started_s = now_s
        self.job = self.job.given(workers, batch)
        self._resumes_s = max(self._resumes_s, now_s + pause_s)
        self._has_reported = False
        self._set_speed()

    def count_round(self) -> None:
        """Count a round that was decided while it was there."""
        self.job = self.job.after_round()

    def _set_speed(self) -> None:
        workers, batch = self.job.workers, self.job.batch
        if not workers:
            self.speed = None
            return
        self.speed = self.truth.profile.at(workers, batch)
        self._progress = self.speed.throughput * self.truth.progress_per_sample(workers, batch)
