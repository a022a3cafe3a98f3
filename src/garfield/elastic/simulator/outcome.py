"""What came of a simulation: the numbers of the thesis (4.5.1), and a series for its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from garfield.elastic.simulator.running_job import RunningJob
from garfield.elastic.simulator.workload import SimulatedJob


@dataclass(frozen=True)
class Point:
    """The cluster at one moment: counts as of now, rates as means since the point before.

    A rate of one moment would mislead: rounds come at full minutes, as points do, and whoever is
    rescaled in a round stands still just then. None where there was nothing to take a mean of.
    """

    at_s: float
    gpus: int
    """GPUs that jobs have."""
    running: int
    waiting: int
    completed: int
    throughput: float | None
    """Samples a second of a running job; while it is rescaled it does 0."""
    total_throughput: float | None
    """Samples a second of all jobs."""
    compute: float | None
    """The part of active GPUs' time that was computed (modelled)."""
    memory: float | None
    """The part of active GPUs' memory that was in use (modelled)."""


class Series:
    """Points of a simulation, taken one after the other."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._before = _Totals()

    def add(self, now_s: float, active: Sequence[RunningJob], done: Sequence[RunningJob]) -> None:
        """Take a point; all jobs have been accounted for until now."""
        running = [each for each in active if each.speed is not None]
        before, self._before = self._before, _Totals.of(now_s, [*active, *done])
        since = self._before.less(before)
        self.points.append(
            Point(
                now_s,
                sum(each.job.workers for each in running),
                len(running),
                len(active) - len(running),
                len(done),
                _ratio(since.trained, since.ran_s),
                _ratio(since.trained, since.at_s),
                _ratio(since.compute_s, since.gpu_s),
                _ratio(since.memory_s, since.gpu_s),
            )
        )


@dataclass(frozen=True)
class _Totals:
    """What all jobs together have had and done until some moment, or between two."""

    at_s: float = 0.0
    trained: float = 0.0
    ran_s: float = 0.0
    gpu_s: float = 0.0
    compute_s: float = 0.0
    memory_s: float = 0.0

    @classmethod
    def of(cls, now_s: float, jobs: Sequence[RunningJob]) -> _Totals:
        names = [field.name for field in fields(cls)][1:]
        return cls(now_s, *(sum(getattr(job, name) for job in jobs) for name in names))

    def less(self, other: _Totals) -> _Totals:
        return _Totals(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


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


def series_step(workload: Sequence[SimulatedJob]) -> float:
    """Seconds between points of a time series: about four hundred until the last arrival."""
    last_s = max((job.arrives_s for job in workload), default=0.0)
    return max(30.0, round(last_s / 400, -1))


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
