"""Jobs of recorded traces: Microsoft's Philly trace, and the workloads of Pollux.

Philly (Jeon et al., ATC 2019) tells when jobs came, for how long and on how many GPUs, not what
they trained. As in Pollux (OSDI 2021, section 5.1) the model follows from the GPU time:

    under 1 GPU-hour       ResNet-18 on CIFAR-10, or NeuMF
    1 to 10                BERT, or DeepSpeech2
    10 to 100              YOLOv3
    100 to 1000            ResNet-50 on ImageNet

Jobs are drawn from a window of eight hours that holds enough of them, and are as long under
Static as recorded. A workload of Pollux names model, workers and batch, and trains to the target.
Neither is shipped.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError
from garfield.elastic.policy.jobs import JobRequest
from garfield.elastic.simulator.profiles import profile
from garfield.elastic.simulator.settings import WorkloadSettings
from garfield.elastic.simulator.workload import SimulatedJob, first_batch

WINDOW_S = 8 * 3600.0
BY_GPU_HOURS = (
    (1.0, ("cifar10", "ncf")),
    (10.0, ("bert", "deepspeech2")),
    (100.0, ("yolov3",)),
    (1000.0, ("imagenet",)),
)
"""Models for jobs of less than so many GPU-hours."""


def jobs_of_trace(
    path: Path, settings: WorkloadSettings, rng: np.random.Generator
) -> list[SimulatedJob]:
    """The jobs of a file, of whichever of the two kinds it is."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if all(row.values())]
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}.") from None
    columns = set(rows[0]) if rows else set()
    try:
        if {"time", "application", "num_replicas", "batch_size"} <= columns:
            return _pollux(rows[: settings.jobs], settings)
        if {"timestamp", "duration", "num_gpus"} <= columns:
            return _philly(rows, settings, rng)
    except ValueError as problem:
        raise ConfigError(f"{path} holds a row that is not understood: {problem}.") from None
    raise ConfigError(
        f"{path} is no trace: it needs the columns timestamp, duration, num_gpus (Philly), or "
        "time, application, num_replicas, batch_size (a workload of Pollux)."
    )


def model_of(gpu_hours: float, rng: np.random.Generator) -> str | None:
    """The model that stands for a job of Philly; None for one that is longer than all."""
    for most, names in BY_GPU_HOURS:
        if gpu_hours < most:
            return names[int(rng.integers(len(names)))]
    return None


def _pollux(rows: Sequence[dict[str, Any]], settings: WorkloadSettings) -> list[SimulatedJob]:
    found = []
    for row in sorted(rows, key=lambda row: float(row["time"])):
        model, workers = profile(row["application"]), int(row["num_replicas"])
        batch = max(1, min(model.largest_batch, int(row["batch_size"]) // workers))
        request = JobRequest(
            settings.min_workers,
            max(workers, settings.min_workers),
            max(settings.max_workers, workers),
            batch,
            max_global_batch=max(model.largest_global_batch, workers * batch),
            learning_rate="none",
        )
        first = model.samples_to_target[0][1] / model.statistical_efficiency(workers * batch)
        is_to_target = settings.until == "target"
        found.append(
            SimulatedJob(row["name"], float(row["time"]), model, request, first, is_to_target)
        )
    return found


def _philly(
    rows: Sequence[dict[str, Any]], settings: WorkloadSettings, rng: np.random.Generator
) -> list[SimulatedJob]:
    usable = sorted(
        (
            (datetime.fromisoformat(row["timestamp"]).timestamp(), at)
            for at, row in enumerate(rows)
            if float(row["duration"]) > 0 and int(row["num_gpus"]) > 0 and _hours(row) < 1000
        )
    )
    times = np.array([each[0] for each in usable])
    ends = np.searchsorted(times, times + WINDOW_S)
    enough = np.flatnonzero(ends - np.arange(len(times)) >= settings.jobs)
    if not len(enough):
        raise ConfigError(
            f"No eight hours of the trace hold {settings.jobs} jobs. Ask for fewer: --jobs."
        )
    start = int(rng.choice(enough))
    chosen = np.sort(rng.choice(np.arange(start, ends[start]), settings.jobs, replace=False))
    return [
        _philly_job(
            f"philly-{at}",
            float(times[which] - times[start]),
            rows[usable[which][1]],
            settings,
            rng,
        )
        for at, which in enumerate(chosen)
    ]


def _philly_job(
    name: str, arrives_s: float, row: dict[str, Any], settings: WorkloadSettings,
    rng: np.random.Generator,
) -> SimulatedJob:  # fmt: skip
    named = model_of(_hours(row), rng)
    assert named is not None  # longer ones were left out
    model = profile(named)
    start = min(max(int(row["num_gpus"]), settings.min_workers), settings.max_workers)
    request = JobRequest(
        settings.min_workers,
        start,
        settings.max_workers,
        first_batch(model, settings.batch_scale),
        max_global_batch=max(model.largest_global_batch, start * first_batch(model)),
        learning_rate="none",
    )
    samples = float(row["duration"]) * model.at(start, request.batch).throughput
    return SimulatedJob(name, arrives_s, model, request, samples, settings.until == "target")


def _hours(row: dict[str, Any]) -> float:
    return float(row["duration"]) * int(row["num_gpus"]) / 3600
