"""Jobs of a simulation: what arrives when, and how much there is to train.

Models are drawn from a pool. A job's first batch is its workload's own default: the smallest
global batch that was validated, shared by the workers of a usual start (two). Its length is drawn
in seconds under Static, evenly around the average, and turned into samples at the speed of its
first size: the number of epochs is then fixed, whoever schedules it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from garfield.core.errors import ConfigError
from garfield.elastic.policy.jobs import JobRequest
from garfield.elastic.simulator.profiles import Profile, profile
from garfield.elastic.simulator.settings import GAPS_S, SPREAD, WorkloadSettings

USUAL_START = 2
"""Workers that share the default global batch."""


@dataclass(frozen=True)
class SimulatedJob:
    """A job as it will be: no policy sees this."""

    name: str
    arrives_s: float
    profile: Profile
    request: JobRequest
    samples: float
    """Samples to train on; to a target, at the job's first global batch."""
    to_target: bool = False

    def progress_per_sample(self, workers: int, batch: int) -> float:
        """How much a sample counts: less in large batches, on the way to a target."""
        if not self.to_target:
            return 1.0
        first = self.request.start_workers * self.request.batch
        there = self.profile.statistical_efficiency
        return there(workers * batch) / there(first)


def workload_of(settings: WorkloadSettings) -> list[SimulatedJob]:
    """All jobs, by arrival."""
    rng = np.random.default_rng(settings.seed)
    if settings.trace is not None:
        from garfield.elastic.simulator.traces import jobs_of_trace

        return jobs_of_trace(Path(settings.trace), settings, rng)
    names, weights = _pool(settings.models)
    arrivals = _arrivals(settings, rng)
    drawn = rng.choice(len(names), size=settings.jobs, p=weights)
    lengths = settings.length_s * rng.uniform(1 - SPREAD, 1 + SPREAD, settings.jobs)
    return [
        _job(f"{names[which]}-{at}", arrives_s, profile(names[which]), length_s, settings)
        for at, (arrives_s, which, length_s) in enumerate(
            zip(arrivals, drawn, lengths.tolist(), strict=True)
        )
    ]


def first_batch(model: Profile, scale: float = 1.0) -> int:
    """The samples of each worker that a job of this model begins with."""
    return max(1, min(model.largest_batch, round(scale * model.base_batch / USUAL_START)))


def _job(
    name: str, arrives_s: float, model: Profile, length_s: float, settings: WorkloadSettings
) -> SimulatedJob:
    request = JobRequest(
        min_workers=settings.min_workers,
        start_workers=settings.start_workers,
        max_workers=settings.max_workers,
        batch=first_batch(model, settings.batch_scale),
        max_global_batch=model.largest_global_batch,
        learning_rate="none",
    )
    samples = length_s * model.at(request.start_workers, request.batch).throughput
    return SimulatedJob(name, arrives_s, model, request, samples, settings.until == "target")


def _arrivals(settings: WorkloadSettings, rng: np.random.Generator) -> list[float]:
    if settings.schedule == "all-at-once":
        return [0.0] * settings.jobs
    gap_s = settings.gap_s or GAPS_S[settings.schedule]
    if settings.schedule == "fixed":
        return [gap_s * at for at in range(settings.jobs)]
    gaps = rng.exponential(gap_s, settings.jobs)
    gaps[0] = 0.0
    return [float(at) for at in np.cumsum(gaps)]


def _pool(text: str) -> tuple[list[str], list[float]]:
    """Names and shares of "imagenet:6,bert:1"."""
    names, weights = [], []
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, weight = part.partition(":")
        try:
            weights.append(float(weight) if colon else 1.0)
        except ValueError:
            raise ConfigError(f"models: {part} must be a name, or name:weight.") from None
        names.append(profile(name).name)
    if not names or min(weights) < 0 or not sum(weights) > 0:
        raise ConfigError(f"models must name at least one with a positive weight, got {text!r}.")
    return names, [weight / sum(weights) for weight in weights]
