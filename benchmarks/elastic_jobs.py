"""Six small real jobs on a local cluster under four policies, and the same six simulated.

Jobs are convolutional networks of three widths that learn the digits, each job a number of epochs;
they arrive some seconds apart on four slots, each held to its share of a core. Every policy meets
the same jobs at the same times, in a cluster of its own; periods are scaled down alike.

The simulator is given what was measured: samples a second over workers (of all policies' runs, the
mean of what jobs of that width reported), the same arrivals and samples. It knows no processes that
start, so the mean time from a job's first process to its first step is added to its completion
times. What then differs is what the simulator does not know: slots that are not free yet, workers
that join late, noise.

A policy's run is kept in results/elastic_jobs, and not run again unless `--fresh`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from garfield.core.files import write_json
from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.history import histories, start_up_s, summary
from garfield.elastic.local.job_file import JobFile
from garfield.elastic.policy import parse
from garfield.elastic.policy.jobs import JobRequest
from garfield.elastic.simulator.cluster import simulate
from garfield.elastic.simulator.profiles import Profile, Speed
from garfield.elastic.simulator.settings import ClusterSettings
from garfield.elastic.simulator.step_time import StepTime
from garfield.elastic.simulator.workload import SimulatedJob
from garfield.report.plain_tables import plain_table
from garfield.runs.run_directory import RunDirectory

QUESTION = "How long do six small real jobs take under each policy, and what does a simulation say?"
POLICIES = ("era", "static", "autoscaler", "afs-p")
KEPT = Path(__file__).parents[1] / "results" / "elastic_jobs"
SAMPLES = 1497
"""Digits to train on."""
BATCH = 128
"""With 32 a step is so short that two workers are hardly faster than one."""
_LOOK_S = 0.2
_GIVE_UP_S = 1800.0


@dataclass(frozen=True)
class RealJob:
    """One of the six."""

    name: str
    width: int
    epochs: int

    @property
    def samples(self) -> int:
        return SAMPLES * self.epochs


JOBS = (
    RealJob("small-1", 16, 300), RealJob("large-1", 48, 80), RealJob("middle-1", 32, 150),
    RealJob("small-2", 16, 200), RealJob("large-2", 48, 60), RealJob("middle-2", 32, 200),
)  # fmt: skip
"""About a minute each on two slots of half a core, where a worker takes ten seconds to start."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--policies", nargs="+", default=list(POLICIES))
    group.add_argument("--slots", type=int, default=4)
    group.add_argument("--gap-s", type=float, default=20.0, help="between two arrivals")
    group.add_argument("--decide-s", type=float, default=15.0, help="monitoring is twice as often")
    group.add_argument("--fresh", action="store_true", help="run again what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table: measured and simulated."""
    jobs = JOBS
    if options.quick:
        jobs = tuple(replace(job, epochs=job.epochs // 5) for job in JOBS[:2])
    runs = {}
    for policy in options.policies:
        console.print(f"{policy}: {len(jobs)} jobs on {options.slots} slots")
        runs[policy] = _real(policy, jobs, options)
    speeds = _speeds(runs)
    table = plain_table(
        "policy", "JCT, s", "makespan, s", "queueing, s", "rescalings", "start-up, s",
        "JCT simulated, s", "makespan simulated, s", right=7,
    )  # fmt: skip
    found = []
    for policy, real in runs.items():
        simulated = _simulated(policy, jobs, options, speeds, real["start_up_s"] or 0.0)
        row = {"policy": policy, **real["summary"], "start_up_s": real["start_up_s"], **simulated}
        table.add_row(policy, *(f"{row[key] or 0.0:,.1f}" for key in (
            "jct_s", "makespan_s", "queueing_s", "rescalings", "start_up_s", "simulated_jct_s",
            "simulated_makespan_s",
        )))  # fmt: skip
        found.append({**row, "jobs": real["jobs"]})
    console.print(table)
    return {"policies": found, "throughput": {str(width): by for width, by in speeds.items()}}


def _real(policy: str, jobs: tuple[RealJob, ...], options: argparse.Namespace) -> dict[str, Any]:
    """What is kept of a policy's run, or what comes of it now."""
    named = f"{policy}-{len(jobs)}x{options.slots}-{options.gap_s:g}-{options.decide_s:g}"
    kept = KEPT / f"{named}.json"
    if kept.exists() and not options.fresh:
        read: dict[str, Any] = json.loads(kept.read_text())
        return read
    path = KEPT / f"{named}-{time.time_ns()}"
    cluster = Cluster(path)
    with alone():
        cluster.start([
            "elastic", "up", "--foreground", f"--dir={path}", f"--slots={options.slots}",
            f"--policy={policy}", f"--decide-s={options.decide_s}", "--grace-s=5",
            f"--monitor-s={options.decide_s / 2}", f"--collect-s={options.decide_s}",
        ])  # fmt: skip
        try:
            _feed(cluster, jobs, options)
        finally:
            cluster.end()
    events = RunDirectory(path).events()
    done = histories(events)
    result = {
        "summary": summary(done),
        "start_up_s": start_up_s(done),
        "jobs": {job.name: job.jct_s for job in done},
        "measured": _measured(events, jobs),
    }
    write_json(kept, result)
    return result


def _feed(cluster: Cluster, jobs: tuple[RealJob, ...], options: argparse.Namespace) -> None:
    database = cluster.database()
    began, submitted = time.monotonic(), 0
    try:
        while True:
            passed_s = time.monotonic() - began
            while submitted < len(jobs) and passed_s >= submitted * options.gap_s:
                database.submit(_file(jobs[submitted], options))
                submitted += 1
            if submitted == len(jobs) and not any(j.record.is_active for j in database.jobs()):
                return
            if passed_s > _GIVE_UP_S:
                raise TimeoutError(f"jobs have not ended in {_GIVE_UP_S:.0f} s: see {cluster.log}")
            time.sleep(_LOOK_S)
    finally:
        database.close()


def _request(options: argparse.Namespace) -> JobRequest:
    start = min(2, options.slots)
    return JobRequest(1, start, options.slots, BATCH, scale_batch=False, learning_rate="none")


def _file(job: RealJob, options: argparse.Namespace) -> JobFile:
    script = "garfield.elastic.local.demo_job"
    arguments = ("--epochs", str(job.epochs), "--width", str(job.width))
    command = (sys.executable, "-m", script, *arguments)
    return JobFile(job.name, command, str(Path.cwd()), (), _request(options))


def _measured(events: Any, jobs: tuple[RealJob, ...]) -> list[tuple[int, int, float]]:
    """(width, workers, samples a second) of all that jobs reported at the batch they asked for."""
    widths = {job.name: job.width for job in jobs}
    found = {}
    for event in events:
        if event["event"] == "decision":
            for job in event["snapshot"]["jobs"]:
                for each in job["measurements"]:
                    key = (job["name"], each["workers"], each["at_s"])
                    found[key] = (widths[job["name"]], each["workers"], each["throughput"])
    return list(found.values())


def _speeds(runs: dict[str, dict[str, Any]]) -> dict[int, dict[int, float]]:
    """Samples a second by width and workers: the mean over all runs."""
    told: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for real in runs.values():
        for width, workers, throughput in real["measured"]:
            told[width][workers].append(throughput)
    return {
        width: {workers: sum(each) / len(each) for workers, each in sorted(by.items())}
        for width, by in told.items()
    }


@dataclass(frozen=True)
class MeasuredProfile(Profile):
    """Speeds as they were measured; between and beyond, in proportion to the nearest."""

    speeds: tuple[tuple[int, float], ...] = ()

    def at(self, workers: int, batch: int) -> Speed:
        nearest, throughput = min(self.speeds, key=lambda each: abs(each[0] - workers))
        throughput *= workers / nearest
        return Speed(workers * batch / throughput, throughput, 1.0, 0.5)


def _profile(job: RealJob, speeds: dict[int, float]) -> MeasuredProfile:
    unused = StepTime(*(0.0 for _ in fields(StepTime)))
    return MeasuredProfile(job.name, unused, BATCH, ((BATCH, 1),), tuple(speeds.items()))


def _simulated(
    policy: str,
    jobs: tuple[RealJob, ...],
    options: argparse.Namespace,
    speeds: dict[int, dict[int, float]],
    start_up: float,
) -> dict[str, float]:
    """The same jobs on a virtual clock, with the measured start-up added."""
    workload = [
        SimulatedJob(
            job.name, at * options.gap_s, _profile(job, speeds[job.width]), _request(options),
            job.samples,
        )
        for at, job in enumerate(jobs)
    ]  # fmt: skip
    cluster = ClusterSettings(
        gpus=options.slots, monitor_s=options.decide_s / 2, decide_s=options.decide_s, rescale_s=0.5
    )
    told = simulate(parse(policy), workload, cluster).summary()
    return {
        "simulated_jct_s": (told["jct_s"] or 0.0) + start_up,
        "simulated_makespan_s": (told["makespan_s"] or 0.0) + start_up,
    }
