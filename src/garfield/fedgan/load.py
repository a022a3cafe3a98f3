"""How much each device does in a round: batch by its memory, iterations by its compute.

    batch_k = round(B · min(1, memory_k / memory_full))     at least 1
    steps_k = round(E · min(1, compute_k / compute_full))   at least 1

a linear model, as in the thesis (6.3.2; 6.3.4 on weak devices). What counts as full is stated, not
taken from what devices declare: one that claims a thousandfold would else shrink all others'
loads. `relative` is steps · batch over E · B, what weights are multiplied by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Load:
    """What one device does in a round."""

    batch: int
    steps: int

    def relative(self, full: Load) -> float:
        """Samples computed, relative to the full load."""
        return self.batch * self.steps / (full.batch * full.steps)


@dataclass(frozen=True)
class LoadModel:
    """From memory and compute to a load."""

    full: Load
    memory_mb: float = 1024.0
    """Memory that the full batch needs."""
    compute: float = 1.0
    """Compute that does all iterations in time."""

    def __post_init__(self) -> None:
        for name, value in (
            ("batch", self.full.batch), ("local steps", self.full.steps),
            ("memory_mb", self.memory_mb), ("compute", self.compute),
        ):  # fmt: skip
            if not value > 0:
                raise ConfigError(f"The full load needs a positive {name}, got {value}.")

    def of(self, memory_mb: float, compute: float) -> Load:
        """The load of a device with so much memory and compute."""
        batch = self.full.batch * min(1.0, memory_mb / self.memory_mb)
        steps = self.full.steps * min(1.0, compute / self.compute)
        return Load(max(1, round(batch)), max(1, round(steps)))


def drawn(samples: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of one batch: without replacement, or with it where a device has fewer samples."""
    return rng.choice(samples, batch, replace=samples < batch)
