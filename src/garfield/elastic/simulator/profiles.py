"""Profiles of models: speed over workers and batch size, use of a GPU, samples to a target.

`profiles.json` holds what `tools/fit_profiles.py` found, and where the measurements come from.
What is *modelled* here, and labelled so wherever it is shown: compute is used for T_grad of a
step's T, memory for a batch of the largest batch that was profiled.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from garfield.core.errors import UnknownName
from garfield.elastic.simulator.step_time import StepTime

GPUS_PER_NODE = 4
"""Of the cluster that was measured. Workers are taken to be on as few nodes as hold them."""


@dataclass(frozen=True)
class Speed:
    """A job at one size."""

    step_s: float
    throughput: float
    """Samples a second of all workers."""
    compute: float
    """The part of a step that a GPU computes."""
    memory: float
    """The part of a GPU's memory that is in use."""


@dataclass(frozen=True)
class Profile:
    """A model on the GPUs that it was measured on."""

    name: str
    step_time: StepTime
    largest_batch: int
    """Samples of one worker that fitted its GPU."""
    samples_to_target: tuple[tuple[int, int], ...]
    """Global batches that were validated, ascending, and samples until each reached the target."""

    @property
    def base_batch(self) -> int:
        """The smallest global batch that was validated: the workload's own default."""
        return self.samples_to_target[0][0]

    @property
    def largest_global_batch(self) -> int:
        """The largest that was validated: beyond, nobody knows how it converges."""
        return self.samples_to_target[-1][0]

    def at(self, workers: int, batch: int) -> Speed:
        """How fast it trains on so many workers with so many samples each."""
        return _speed(self, workers, batch)

    def statistical_efficiency(self, global_batch: int) -> float:
        """Samples to the target at the base batch, over samples at this one.

        Between validated batches both logarithms are interpolated.
        """
        batches, samples = zip(*self.samples_to_target, strict=True)
        needed = np.interp(math.log(global_batch), np.log(batches), np.log(samples))
        return float(samples[0] / math.exp(needed))


@lru_cache(maxsize=65536)
def _speed(profile: Profile, workers: int, batch: int) -> Speed:
    nodes = -(-workers // GPUS_PER_NODE)
    step_s = profile.step_time.step_s(workers, nodes, batch)
    return Speed(
        step_s,
        workers * batch / step_s,
        profile.step_time.compute_s(batch) / step_s,
        batch / profile.largest_batch,
    )


def profile(name: str) -> Profile:
    """The shipped profile of that name."""
    if name not in (known := profiles()):
        raise UnknownName("a profiled model", name, known)
    return known[name]


@cache
def profiles() -> dict[str, Profile]:
    """All shipped profiles."""
    return {
        name: Profile(
            name,
            StepTime(*each["step_time"]),
            each["largest_batch"],
            tuple((int(batch), samples) for batch, samples in each["samples_to_target"].items()),
        )
        for name, each in shipped()["models"].items()
    }


@cache
def shipped() -> dict[str, Any]:
    """The whole file: coefficients, errors on held-out rows, source."""
    text = (files("garfield.elastic.simulator") / "profiles.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
