"""What is simulated for each figure of chapter 4, and what the thesis claims about it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from benchmarks.elastic_claims import Claim, near
from benchmarks.elastic_runs import POLICIES, Runs, paired, series_lines
from garfield.elastic.simulator.outcome import Point
from garfield.elastic.simulator.profiles import profile
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.elastic.simulator.workload import first_batch
from garfield.report.elastic_table import policies_table
from garfield.report.plain_tables import plain_table

OTHERS = POLICIES[1:]
JOBS = (10, 20, 30, 40, 50, 60)
STARTS = (1, 2, 4, 8, 16)
HOURS_7 = 7 * 3600.0
RATIOS = {"jct_s": ("JCT", (2.5, 2.1, 2.0)), "makespan_s": ("makespan", (1.9, 1.56, 1.76))}
"""How many times better ERA is than the others, by the thesis."""


@dataclass(frozen=True)
class Figure:
    """What was found for one figure."""

    summary: list[dict[str, Any]]
    claims: Sequence[Claim]
    series: list[dict[str, Any]] = field(default_factory=list)
    tables: Sequence[Table] = ()


def figure_1(options: argparse.Namespace) -> Figure:
    runs = _paired(WorkloadSettings("poisson", 15), options, ("static",), every_s=60.0)
    points = runs.of["static"][0].points
    peak = 100 * max(point.gpus for point in points) / 64
    memory = 100 * max(point.memory or 0.0 for point in points)
    claims = [
        Claim("Static uses at most 45 % of the cluster (calibrated on it)", 45, peak, peak <= 45),
        near("its memory in use peaks at 60 %", 60, memory),
    ]
    return Figure(runs.lines(), claims, series_lines(runs))


def figure_3(options: argparse.Namespace) -> Figure:
    workload = WorkloadSettings("all-at-once", 1, models="imagenet")
    runs = _paired(workload, options, every_s=60.0)
    full = {name: _minutes_to(16, each[0].points) for name, each in runs.of.items()}
    best = {name: _fastest(each[0].points) for name, each in runs.of.items()}
    compute = {name: 100 * (point.compute or 0.0) for name, point in best.items()}
    memory = {name: 100 * (point.memory or 0.0) for name, point in best.items()}
    claims = [
        Claim("ERA has 16 GPUs after 4 minutes", 4, full["era"], full["era"] == 4),
        Claim("AFS-P too", 4, full["afs-p"], full["afs-p"] == 4),
        Claim("Autoscaler after 16", 16, full["autoscaler"], full["autoscaler"] == 16),
        near("ERA trains on more than 6000 samples/s", 6000, best["era"].throughput or 0.0),
        Claim("ERA uses almost 100 % of compute", 100, compute["era"], compute["era"] >= 95),
        _at_most("the others at most 70 %", 70, max(compute[name] for name in OTHERS)),
        Claim("ERA uses up to 60 % of memory", 60, memory["era"], memory["era"] >= 55),
        _at_most("the others at most 20 %", 20, max(memory[name] for name in OTHERS)),
    ]
    return Figure(runs.lines(), claims, series_lines(runs), [_means(runs)])


def figure_4(options: argparse.Namespace) -> Figure:
    lines = []
    for start in STARTS:
        workload = WorkloadSettings(
            "all-at-once", 1, models="imagenet", start_workers=start, length_s=_same_work(start)
        )
        lines += _paired(workload, options).lines(start=start)
    jct = {name: [line["jct_s"] for line in lines if line["policy"] == name] for name in POLICIES}
    spread = {name: max(each) / min(each) for name, each in jct.items()}
    table = plain_table("JCT, s", *(f"start {n}" for n in STARTS), right=len(STARTS))
    for name, each in jct.items():
        table.add_row(name, *(f"{value:,.0f}" for value in each))
    claims = [
        near(f"{name}'s JCT does not depend on the start: largest over smallest", 1, spread[name])
        for name in ("era", "autoscaler", "afs-p")
    ]
    claims.append(Claim("Static's does", "> 2", spread["static"], spread["static"] > 2))
    return Figure(lines, claims, tables=[table])


def figure_5(options: argparse.Namespace) -> Figure:
    runs = _paired(WorkloadSettings("poisson", 100), options, every_s=600.0, end_s=HOURS_7)
    speed = {name: _mean(runs, name, "throughput") for name in POLICIES}
    use = {name: 100 * _mean(runs, name, "gpu_utilisation") for name in POLICIES}
    memory = {name: 100 * _mean(runs, name, "memory_utilisation") for name in POLICIES}
    there = {"era": 3000, "afs-p": 1500, "autoscaler": 600, "static": 500}
    order = [speed[name] for name in there]
    falls = order == sorted(order, reverse=True)
    more, less = use["era"] - use["static"], use["afs-p"] - use["static"]
    fuller = memory["era"] - max(memory[name] for name in OTHERS)
    claims = [near(f"{name}: samples/s of a job", there[name], speed[name]) for name in there]
    claims += [
        Claim("samples/s: ERA > AFS-P > Autoscaler > Static", "yes", str(falls), falls),
        Claim("compute: ERA above Static, points", 25, more, more >= 20),
        Claim("compute: AFS-P below Static, points", "< 0", less, less < 0),
        Claim("memory: ERA above all others, points", 25, fuller, fuller >= 20),
    ]
    return Figure(runs.lines(), claims, series_lines(runs), [_means(runs)])


def figure_6(options: argparse.Namespace) -> Figure:
    runs = _paired(WorkloadSettings("poisson", 15), options, every_s=60.0)
    peaks = {name: max(p.running for p in each[0].points) for name, each in runs.of.items()}
    least = min((runs.times_better("jct_s", name) for name in OTHERS), key=lambda each: each.mean)
    lowest = peaks["era"] == min(peaks.values())
    claims = [
        Claim("ERA finishes jobs faster than all others: times", "> 1", str(least), least.low > 1),
        Claim("ERA has the lowest peak of running jobs (seed 1)", "yes", str(peaks), lowest),
    ]
    return Figure(runs.lines(), claims, series_lines(runs), [_means(runs)])


def figure_7(options: argparse.Namespace) -> Figure:
    by_jobs = {n: _paired(WorkloadSettings("all-at-once", n), options) for n in JOBS}
    headings = [f"{word} over {name}" for word, _ in RATIOS.values() for name in OTHERS]
    table = plain_table("jobs", *headings, right=len(headings))
    for n, runs in by_jobs.items():
        table.add_row(str(n), *(str(runs.times_better(key, o)) for key in RATIOS for o in OTHERS))
    claims = []
    for key, (word, there) in RATIOS.items():
        for name, wanted in zip(OTHERS, there, strict=True):
            ratios = [runs.times_better(key, name) for runs in by_jobs.values()]
            best = max(ratios, key=lambda each: each.mean)
            told = f"{word}: ERA better than {name}, times, at best"
            claims.append(Claim(told, wanted, str(best), best.high >= wanted))
    waits = {name: _mean(by_jobs[20], name, "queueing_s") for name in POLICIES}
    longer = min(waits["era"], waits["afs-p"]) > max(waits["static"], waits["autoscaler"])
    speed = {name: _mean(by_jobs[60], name, "throughput") for name in POLICIES}
    doubled = speed["era"] / max(speed[name] for name in OTHERS)
    claims += [
        Claim("20 jobs: ERA and AFS-P queue longer", "yes", str(longer), longer),
        near("60 jobs: ERA's samples/s over the best other's", 2.0, doubled),
    ]
    lines = [line for n, runs in by_jobs.items() for line in runs.lines(jobs=n)]
    return Figure(lines, claims, tables=[table])


def figure_8(options: argparse.Namespace) -> Figure:
    runs = _paired(WorkloadSettings("fixed", 20), options, every_s=60.0)
    span = {name: _mean(runs, name, "makespan_s") for name in POLICIES}
    order = sorted(span, key=lambda name: span[name])
    memory = 100 * max(point.memory or 0.0 for point in runs.of["era"][0].points)
    claims = [
        near("ERA's makespan, s", 5000, span["era"]),
        near("Autoscaler's makespan, s", 7300, span["autoscaler"]),
        Claim("ERA is first", "era", order[0], order[0] == "era"),
        Claim("Autoscaler is second", "autoscaler", order[1], order[1] == "autoscaler"),
        Claim("ERA's memory in use exceeds 70 % at best", 70, memory, memory > 70),
    ]
    return Figure(runs.lines(), claims, series_lines(runs), [_means(runs)])


FIGURES: dict[str, Callable[[argparse.Namespace], Figure]] = {
    "4.1": figure_1, "4.3": figure_3, "4.4": figure_4, "4.5": figure_5, "4.6": figure_6,
    "4.7": figure_7, "4.8": figure_8,
}  # fmt: skip


def _paired(
    workload: WorkloadSettings,
    options: argparse.Namespace,
    policies: tuple[str, ...] = POLICIES,
    *,
    every_s: float | None = None,
    end_s: float | None = None,
) -> Runs:
    cluster = ClusterSettings(rescale_s=options.rescale_s, end_s=end_s)
    return paired(workload, cluster, policies, seeds=options.seeds, every_s=every_s)


def _same_work(start: int) -> float:
    """The seconds, with so many workers, of a job that takes the usual length with two."""
    model = profile("imagenet")
    two, now = (model.at(n, first_batch(model)).throughput for n in (2, start))
    return WorkloadSettings().length_s * two / now


def _minutes_to(gpus: int, points: Sequence[Point]) -> float:
    return min((point.at_s / 60 for point in points if point.gpus == gpus), default=float("inf"))


def _fastest(points: Sequence[Point]) -> Point:
    """A job alone once nothing is scaled any more."""
    return max(points, key=lambda point: point.throughput or 0.0)


def _at_most(what: str, there: float, here: float) -> Claim:
    return Claim(what, there, here, here <= there)


def _mean(runs: Runs, policy: str, key: str) -> float:
    numbers = runs.numbers(policy, key)
    return sum(numbers) / len(numbers)


def _means(runs: Runs) -> Table:
    return policies_table({line["policy"]: line for line in runs.lines()})
