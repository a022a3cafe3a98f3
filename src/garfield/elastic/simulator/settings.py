"""The settings of a simulation: which jobs, which cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from garfield.core.bounds import Seed, Within
from garfield.core.config import check_numbers
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.naming import split_at

SCHEDULES = ("poisson", "all-at-once", "fixed", "trace")
GAPS_S = {"poisson": 240.0, "fixed": 120.0}
"""Seconds between two arrivals (thesis, 4.5.1)."""
LENGTH_S = 4400.0
"""Seconds that a job takes under Static, on average: calibrated on Static's Figure 4.1 alone, by
tools/calibrate_lengths.py, before any other policy ran in the simulator."""
SPREAD = 0.5
"""Lengths are drawn evenly from 1 − SPREAD to 1 + SPREAD of the average."""


@dataclass(frozen=True)
class WorkloadSettings:
    """Which jobs arrive when."""

    schedule: str = "poisson"
    """When jobs arrive: poisson, all-at-once, fixed, or trace."""
    jobs: Annotated[int, Within(1)] = 60
    """How many."""
    gap_s: Annotated[float | None, Within(0, above=True)] = None
    """Seconds between arrivals, the mean for poisson. (240 for poisson, 120 for fixed)"""
    trace: str | None = None
    """A CSV of jobs: the Philly trace, or a workload of Pollux."""
    models: str = "imagenet:6,cifar10:6,bert:1"
    """Models to draw from, with weights. (as the thesis: twelve of images to one of language)"""
    length_s: Annotated[float, Within(0, above=True)] = LENGTH_S
    """Seconds that a job takes under Static, on average."""
    until: str = "epochs"
    """When a job is done: after its epochs, or at a target metric, which large batches take more
    samples to reach."""
    min_workers: Annotated[int, Within(1)] = 1
    """The least workers of every job."""
    start_workers: Annotated[int, Within(1)] = 2
    """Workers that every job starts with."""
    max_workers: Annotated[int, Within(1)] = 16
    """The most workers of every job."""
    batch_scale: Annotated[float, Within(0, above=True)] = 1.0
    """What each job's first batch is multiplied with: the default is its workload's own."""
    seed: Seed = 0
    """Fixes arrivals, models and lengths: every policy meets the same jobs."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.schedule not in SCHEDULES:
            raise UnknownName("a schedule", self.schedule, SCHEDULES)
        if self.until not in ("epochs", "target"):
            raise UnknownName("an end of jobs", self.until, ("epochs", "target"))
        if (self.schedule == "trace") != (self.trace is not None):
            raise ConfigError("--schedule trace and --trace FILE.csv belong together: give both.")


@dataclass(frozen=True)
class ClusterSettings:
    """The cluster, and what decisions cost there."""

    gpus: Annotated[int, Within(1)] = 64
    """How many GPUs there are."""
    monitor_s: Annotated[float, Within(0, above=True)] = 120.0
    """Seconds between two looks at a job's reports."""
    decide_s: Annotated[float, Within(0, above=True)] = 240.0
    """Seconds between two rounds."""
    report_steps: Annotated[int, Within(1)] = 10
    """Steps between two reports of a job."""
    rescale_s: Annotated[float, Within(0)] = 30.0
    """Seconds that a change of workers stops a job: 30 is what Pollux's simulator charges. Measured
    here: 0.2 to 1.1 in-process (18 million parameters), 6 to 9 by a tuned torchrun, 35 to 47 by its
    defaults."""
    rebuild_s: Annotated[float, Within(0)] = 0.2
    """Seconds that a change of the batch alone stops a job, whose loader is built again. Measured
    here: 0.04 to 0.17 until the first batch of a torch loader with 1 to 5 processes."""
    end_s: Annotated[float | None, Within(0, above=True)] = None
    """When to stop, finished or not. (when all jobs are)"""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class SimulationSettings:
    """All settings of `garfield elastic simulate`."""

    policy: str = "era,static,autoscaler,afs-p"
    """Policies to compare, with commas: era, era-marginal, static, autoscaler, afs-p."""
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)

    @property
    def policies(self) -> tuple[str, ...]:
        """Their names: commas inside brackets belong to parameters."""
        found = map(str.strip, split_at(",", self.policy))
        return tuple(dict.fromkeys(filter(None, found)))
