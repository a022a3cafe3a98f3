"""The demonstration: the same three real jobs on four slots, under one policy after the other.

Jobs arrive over time. Each policy has a cluster of its own, with its own daemon and worker
processes, and all periods scaled down from minutes to seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.core.errors import RunError
from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.history import JobHistory, histories, summary
from garfield.elastic.local.job_file import JobFile
from garfield.elastic.policy.jobs import JobRequest
from garfield.elastic.policy.policy import parse
from garfield.runs.run_directory import RunDirectory

_LOOK_S = 0.2


@dataclass(frozen=True)
class DemoSettings:
    """How long the demonstration takes, and what it compares."""

    policies: tuple[str, ...] = ("static", "era")
    """Policies, one after the other."""
    slots: Annotated[int, Within(1)] = 4
    """Workers that run at a time."""
    jobs: Annotated[int, Within(1)] = 3
    """Jobs that arrive."""
    gap_s: Annotated[float, Within(0)] = 12.0
    """Seconds between two arrivals."""
    epochs: Annotated[int, Within(1)] = 60
    """How long each job trains."""
    batch: Annotated[int, Within(1)] = 128
    """Samples of a worker at a time. With 32 a step is so short that two workers are hardly faster
    than one: 3,000 samples a second where one alone has 2,300, measured on slots of half a core."""
    width: Annotated[int, Within(1)] = 32
    """Channels of its network."""
    decide_s: Annotated[float, Within(0, above=True)] = 6.0
    """Seconds between two rounds; monitoring is twice as often. (the thesis has 240)"""
    give_up_s: Annotated[float, Within(0, above=True)] = 600.0
    """Seconds after which a policy's jobs are given up."""

    def __post_init__(self) -> None:
        check_numbers(self)
        for policy in self.policies:
            parse(policy)


@dataclass(frozen=True)
class DemoResult:
    """What came of it."""

    summaries: dict[str, dict[str, Any]]
    """Numbers of each policy."""
    histories: dict[str, list[JobHistory]]
    """Jobs of each policy."""


Tell = Callable[[str, int, int], None]
"""Takes what goes on: the policy, jobs that have ended, jobs in all."""


def run_demo(
    settings: DemoSettings, directory: Path, words: Sequence[str], tell: Tell
) -> DemoResult:
    """Run all policies, each in a directory of its own; `words` load users' files."""
    summaries, found = {}, {}
    for policy in settings.policies:
        jobs = _run(settings, policy, directory / policy.partition("(")[0], words, tell)
        summaries[policy], found[policy] = summary(jobs), jobs
    return DemoResult(summaries, found)


def job_file(settings: DemoSettings, number: int) -> JobFile:
    """The job that arrives at that place."""
    module = "garfield.elastic.local.demo_job"
    arguments = {"epochs": settings.epochs, "width": settings.width, "seed": number}
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    request = JobRequest(
        min_workers=1, start_workers=min(2, settings.slots), max_workers=settings.slots,
        batch=settings.batch, scale_batch=False,
    )  # fmt: skip
    command = (sys.executable, "-m", module, *words)
    return JobFile(f"job-{number + 1}", command, str(Path.cwd()), (), request)


def _run(
    settings: DemoSettings, policy: str, path: Path, words: Sequence[str], tell: Tell
) -> list[JobHistory]:
    cluster = Cluster(path)
    cluster.start([
        *words, "elastic", "up", "--foreground", f"--dir={path.absolute()}",
        f"--slots={settings.slots}", f"--policy={policy}", f"--decide-s={settings.decide_s}",
        f"--monitor-s={settings.decide_s / 2}", f"--collect-s={settings.decide_s}", "--grace-s=5",
    ])  # fmt: skip
    try:
        _feed(settings, cluster, policy, tell)
    finally:
        cluster.end()
    return histories(RunDirectory(path).events())


def _feed(settings: DemoSettings, cluster: Cluster, policy: str, tell: Tell) -> None:
    """Submit jobs when they are due, and wait until all have ended."""
    database = cluster.database()
    began, submitted = time.monotonic(), 0
    try:
        while True:
            passed_s = time.monotonic() - began
            while submitted < settings.jobs and passed_s >= submitted * settings.gap_s:
                database.submit(job_file(settings, submitted))
                submitted += 1
            over = sum(not job.record.is_active for job in database.jobs())
            tell(policy, over, settings.jobs)
            if over == settings.jobs:
                return
            if passed_s > settings.give_up_s:
                raise RunError(
                    f"{over} of {settings.jobs} jobs have ended under {policy} in "
                    f"{passed_s:.0f} s. See {cluster.log}, or train fewer --epochs."
                )
            time.sleep(_LOOK_S)
    finally:
        database.close()
