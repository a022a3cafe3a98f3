"""Models of a job's throughput, fitted to what it reported: t(n) for any number of workers n.

    measured    t = c₀ + c₁·n + c₂·n·b, coefficients ≥ 0, over the freshest of each (n, b)
    thesis      t = c₀ + c₁·n + c₂·b, plain least squares, over the freshest of each n·b (4.4.2);
                without b while no other batch was seen
    concave     step time = c₀ + c₁·b + c₂·n, coefficients ≥ 0, relative errors; t = n·b / step time

The first two are straight lines in n at a given batch b; `efficiency` is equation 4.2,

    e(n) = t(n) / (n · t(1)),

clipped to [0, 1]. With c₀ ≥ 0 it lies there by itself, and without c₀ it would be 1 everywhere.
Under the third every further worker adds less than the one before, as n / (a + c·n) is concave.

While only one number of workers was measured there is nothing to tell how a job scales: all models
then say t(n) in proportion to n, and e = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from garfield.core.registry import Registry
from garfield.core.types import Matrix
from garfield.elastic.policy.measurement import Measurement
from garfield.elastic.policy.nonnegative import nonnegative

Throughput: TypeAlias = Callable[[int], float]
"""Number of workers to samples a second, at one batch size."""

MODELS: Registry[Callable[[tuple[Measurement, ...], int], Throughput]] = Registry(
    "a model of throughput"
)
"""(measurements, batch) to a job's throughput at that batch. There is at least one measurement."""


def model(
    name: str,
) -> Callable[
    [Callable[[tuple[Measurement, ...], int], Throughput]],
    Callable[[tuple[Measurement, ...], int], Throughput],
]:
    """Register a function as a model; what it found is remembered for measurements already seen."""

    def register(
        fit: Callable[[tuple[Measurement, ...], int], Throughput],
    ) -> Callable[[tuple[Measurement, ...], int], Throughput]:
        def fitted(measurements: tuple[Measurement, ...], batch: int) -> Throughput:
            if len({each.workers for each in measurements}) == 1:
                return proportional(measurements, batch)
            return fit(measurements, batch)

        return MODELS.add(name, lru_cache(maxsize=4096)(fitted))

    return register


def proportional(measurements: Sequence[Measurement], batch: int) -> Throughput:
    """As fast a worker as was measured, of the same batch if there is one, else of the nearest."""
    nearest = min(measurements, key=lambda each: (abs(each.batch - batch), -each.at_s))
    each_worker = nearest.throughput / nearest.workers
    return lambda n: each_worker * n


@model("measured")
def measured(measurements: tuple[Measurement, ...], batch: int) -> Throughput:
    n, b, t = _columns(measurements)
    one_batch = len(set(b)) == 1
    rows = np.stack([np.ones_like(n), n] if one_batch else [np.ones_like(n), n, n * b], axis=1)
    found = nonnegative(rows, t)
    fixed = float(found[0])
    each_worker = float(found[1] + (0 if one_batch else found[2] * batch))
    return lambda workers: fixed + each_worker * workers


@model("thesis")
def thesis(measurements: tuple[Measurement, ...], batch: int) -> Throughput:
    fresh = {each.workers * each.batch: each for each in sorted(measurements, key=_age)}
    n, b, t = _columns(tuple(fresh.values()))
    one_batch = len(set(b)) == 1
    rows = np.stack([np.ones_like(n), n] if one_batch else [np.ones_like(n), n, b], axis=1)
    found = np.linalg.lstsq(rows, t, rcond=None)[0]
    fixed = float(found[0] + (0 if one_batch else found[2] * batch))
    each_worker = float(found[1])
    return lambda workers: fixed + each_worker * workers


@model("concave")
def concave(measurements: tuple[Measurement, ...], batch: int) -> Throughput:
    n, b, t = _columns(measurements)
    step_s = n * b / t
    kinds = [np.ones_like(n), n] if len(set(b)) == 1 else [np.ones_like(n), n, b]
    found = nonnegative(np.stack(kinds, axis=1) / step_s[:, None], np.ones_like(n))
    fixed = float(found[0] + (found[2] * batch if len(kinds) == 3 else 0))
    if len(kinds) == 2:
        fixed *= batch / float(b[0])  # one batch was seen: a worker's time is taken to follow it
    each_worker = float(found[1])
    return lambda workers: workers * batch / (fixed + each_worker * workers)


def efficiency(t: Throughput, workers: int) -> float:
    """Equation 4.2, within [0, 1]: what a worker of so many does, of what one alone would."""
    if workers <= 1:
        return 1.0
    alone, together = t(1), t(workers)
    if together <= 0:
        return 0.0
    return min(1.0, together / (workers * alone)) if alone > 0 else 1.0


def gains(t: Throughput, most: int) -> Matrix:
    """What worker 1, 2, … most adds, in units of what the first one does: (most,), never rising."""
    if most < 1:
        return np.zeros(0)
    speeds = np.array([0.0, *(t(n) for n in range(1, most + 1))])
    return np.minimum.accumulate(np.diff(speeds) / speeds[1])  # rounding may make one rise


def _columns(measurements: tuple[Measurement, ...]) -> tuple[Matrix, Matrix, Matrix]:
    found = np.array([(each.workers, each.batch, each.throughput) for each in measurements])
    return found[:, 0], found[:, 1], found[:, 2]


def _age(measurement: Measurement) -> float:
    return measurement.at_s
