"""Several seeds of one simulation, policies paired on the same jobs, with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from garfield.elastic.policy import parse
from garfield.elastic.simulator.cluster import simulate
from garfield.elastic.simulator.outcome import Outcome, Point
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.elastic.simulator.workload import workload_of

POLICIES = ("era", "static", "autoscaler", "afs-p")
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""The 97.5 % point of Student's distribution, for means of so many numbers."""


@dataclass(frozen=True)
class Interval:
    """A mean, and the bounds that hold it with 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(values: Sequence[float]) -> Interval:
    """Of numbers that scatter around their mean."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, mean, mean)
    half = T_95.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Of pairs: the geometric mean of their ratios."""
    logs = [math.log(a / b) for a, b in zip(above, below, strict=True)]
    found = interval(logs)
    return Interval(math.exp(found.mean), math.exp(found.low), math.exp(found.high))


@dataclass(frozen=True)
class Runs:
    """Outcomes by policy, each a list over the same seeds."""

    of: Mapping[str, Sequence[Outcome]]

    def numbers(self, policy: str, key: str) -> list[float]:
        """One number of a policy's summaries, seed by seed."""
        return [float(each.summary()[key] or 0.0) for each in self.of[policy]]

    def times_better(self, key: str, other: str, by: str = "era") -> Interval:
        """How many times smaller a number is under `by` than under another policy."""
        return ratio(self.numbers(other, key), self.numbers(by, key))

    def lines(self, **more: Any) -> list[dict[str, Any]]:
        """A line per policy for a results file: means, and intervals of what is claimed."""
        found = []
        for policy, outcomes in self.of.items():
            keys = outcomes[0].summary()
            means = {key: statistics.fmean(self.numbers(policy, key)) for key in keys}
            spread = {
                f"{key}_{end}": getattr(interval(self.numbers(policy, key)), end)
                for key in ("jct_s", "makespan_s")
                for end in ("low", "high")
            }
            found.append({"policy": policy, **more, **means, **spread})
        return found


def paired(
    workload: WorkloadSettings,
    cluster: ClusterSettings,
    policies: Sequence[str] = POLICIES,
    *,
    seeds: int,
    every_s: float | None = None,
) -> Runs:
    """Every policy on the jobs of every seed; a time series of the first seed alone."""
    found: dict[str, list[Outcome]] = {name: [] for name in policies}
    for seed in range(1, seeds + 1):
        jobs = workload_of(replace(workload, seed=seed))
        for name in policies:
            step_s = every_s if seed == 1 else None
            found[name].append(simulate(parse(name), jobs, cluster, every_s=step_s))
    return Runs(found)


def series_lines(runs: Runs) -> list[dict[str, Any]]:
    """The time series of the first seed, a line per policy and moment."""
    return [
        {"policy": policy, **_point(each, outcomes[0].gpus)}
        for policy, outcomes in runs.of.items()
        for each in outcomes[0].points
    ]


def _point(point: Point, gpus: int) -> dict[str, Any]:
    return {
        "minute": point.at_s / 60,
        "gpus": point.gpus,
        "cluster_percent": 100 * point.gpus / gpus,
        "running": point.running,
        "completed": point.completed,
        "throughput": point.throughput,
        "total_throughput": point.total_throughput,
        "compute_percent": None if point.compute is None else 100 * point.compute,
        "memory_percent": None if point.memory is None else 100 * point.memory,
    }
