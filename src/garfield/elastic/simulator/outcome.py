"""What came of a simulation: the numbers of the thesis (4.5.1), and a series for its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from garfield.elastic.simulator.running_job import RunningJob
from garfield.elastic.simulator.workload import SimulatedJob


@dataclass(frozen=True)
class Point:
    """The cluster at one moment."""

    at_s: float
    gpus: int
    """GPUs that jobs have."""
    running: int
    waiting: int
    completed: int
    throughput: float
    """Samples a second, the mean of running jobs; one that is being rescaled does 0."""
    total_throughput: float
    """The sum."""
    compute: float
    """The part of active GPUs' time that is computed (modelled)."""
    memory: float
    """The part of active GPUs' memory in use (modelled)."""


@dataclass(frozen=True)
class Outcome:
    """A simulation that is over."""

    gpus: int
    ended_s: float
    finished: tuple[RunningJob, ...]
    unfinished: tuple[RunningJob, ...]
    submitted: int
    points: tuple[Point, ...] = ()

    def summary(self) -> dict[str, float | None]:
        """The numbers of `summary.json`. JCT and makespan count finished jobs alone."""
        done, all_ = self.finished, self.finished + self.unfinished
        first_s = min((each.truth.arrives_s for each in all_), default=0.0)
        last_s = max((each.finished_s for each in done), default=self.ended_s)
        gpu_s = sum(each.gpu_s for each in all_)
        ran_s = sum(each.ran_s for each in all_)
        span_s = self.ended_s - first_s
        return {
            "jct_s": _ratio(
                sum(each.finished_s - each.truth.arrives_s for each in done), len(done)
            ),
            "makespan_s": last_s - first_s,
            "queueing_s": _ratio(sum(each.waited_s for each in all_), len(all_)),
            "throughput": _ratio(sum(each.trained for each in all_), ran_s),
            "cluster_utilisation": _ratio(gpu_s, self.gpus * span_s),
            "gpu_utilisation": _ratio(sum(each.compute_s for each in all_), gpu_s),
            "memory_utilisation": _ratio(sum(each.memory_s for each in all_), gpu_s),
            "finished": len(done),
            "rescalings": _ratio(sum(each.job.rescalings for each in all_), len(all_)),
        }


def point_of(now_s: float, active: Sequence[RunningJob], completed: int) -> Point:
    """The cluster now."""
    running = [each for each in active if each.speed is not None]
    gpus = sum(each.job.workers for each in running)
    throughput = compute = memory = 0.0
    for each in running:
        if each.speed is not None and each.trains_at(now_s):
            throughput += each.speed.throughput
            compute += each.job.workers * each.speed.compute
            memory += each.job.workers * each.speed.memory
    return Point(
        now_s, gpus, len(running), len(active) - len(running), completed, throughput / max(1,
        len(running)), throughput, compute / max(1, gpus), memory / max(1, gpus),
    )  # fmt: skip


def series_step(workload: Sequence[SimulatedJob]) -> float:
    """Seconds between points of a time series: about four hundred until the last arrival."""
    last_s = max((job.arrives_s for job in workload), default=0.0)
    return max(30.0, round(last_s / 400, -1))


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
