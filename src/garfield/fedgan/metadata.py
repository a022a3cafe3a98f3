"""What a device tells of itself: samples per class, memory and compute. Nothing else.

    {"samples": [120, 0, 33], "memory_mb": 2048.0, "compute": 1.0}

It is what sampling, weights and loads are decided on, and it is not to be believed blindly: what
is negative, not whole or absurd is refused with the device's name, and what can be believed is
bounded by those who use it (`sampling`: no device beyond twice its fair share).

Counts may be *noised* before they leave the device: two-sided geometric noise with
P(z) ∝ exp(−ε|z|), cut off at 0. One sample more or less changes one count by 1, so what is sent is
ε-differentially private with respect to one sample. Ghosh, Roughgarden and Sundararajan, STOC 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import shown
from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.partition import Counts

MOST_SAMPLES = 10_000_000
"""What a device may claim to have in all; more is taken for a mistake or a lie."""


@dataclass(frozen=True)
class DeviceMetadata:
    """What one device declares."""

    samples: tuple[int, ...]
    """How many samples it has of each class."""
    memory_mb: float = 1024.0
    """Memory that it offers for training."""
    compute: float = 1.0
    """How fast it computes, relative to a device that bears the full load."""

    def as_json(self) -> dict[str, Any]:
        """What is sent."""
        return {
            "samples": list(self.samples), "memory_mb": self.memory_mb, "compute": self.compute,
        }  # fmt: skip

    @staticmethod
    def read(name: str, content: Any, classes: int) -> DeviceMetadata:
        """What a device of that name has sent, checked; InputError if it cannot be true."""
        if not isinstance(content, Mapping) or set(content) != {"samples", "memory_mb", "compute"}:
            raise InputError(
                f"{name} must declare samples, memory_mb and compute, got {shown(content)}."
            )
        samples = content["samples"]
        if not isinstance(samples, Sequence) or isinstance(samples, str):
            raise InputError(f"{name} must declare a list of samples per class.")
        made = DeviceMetadata(tuple(samples), content["memory_mb"], content["compute"])
        made.check(name, classes)
        return made

    def check(self, name: str, classes: int) -> None:
        """Raise InputError, with the device's name, unless all of it can be true."""
        if len(self.samples) != classes:
            raise InputError(
                f"{name} declares samples of {len(self.samples)} classes, and there are {classes}. "
                "All devices must number the same classes alike."
            )
        for number, count in enumerate(self.samples):
            if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
                raise InputError(
                    f"{name} declares {shown(count)} samples of class {number}. "
                    "A count is a whole number of at least 0."
                )
        total = sum(self.samples)
        if total == 0:
            raise InputError(f"{name} has no sample: it cannot train. Leave it out.")
        if total > MOST_SAMPLES:
            raise InputError(
                f"{name} declares {total} samples, more than the {MOST_SAMPLES} that a device is "
                "believed to have."
            )
        for what, value in (("memory_mb", self.memory_mb), ("compute", self.compute)):
            number_like = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number_like or not math.isfinite(value) or value <= 0:
                raise InputError(f"{name} declares {what} {shown(value)}. It must be positive.")


@dataclass(frozen=True, eq=False)
class MetadataTable:
    """What all devices declare, one row each."""

    counts: Counts
    """(devices, classes)"""
    memory_mb: npt.NDArray[np.float64]
    """(devices,)"""
    compute: npt.NDArray[np.float64]
    """(devices,)"""

    @staticmethod
    def of(declared: Sequence[DeviceMetadata], names: Sequence[str]) -> MetadataTable:
        """A table of what these devices declare, checked."""
        if not declared:
            raise InputError("There is no device.")
        for name, each in zip(names, declared, strict=True):
            each.check(name, len(declared[0].samples))
        return MetadataTable(
            np.array([each.samples for each in declared], dtype=np.int64),
            np.array([each.memory_mb for each in declared], dtype=np.float64),
            np.array([each.compute for each in declared], dtype=np.float64),
        )

    @property
    def devices(self) -> int:
        return len(self.counts)

    def declared(self, device: int) -> DeviceMetadata:
        """What one device declares."""
        counts: tuple[int, ...] = tuple(self.counts[device].tolist())
        return DeviceMetadata(counts, float(self.memory_mb[device]), float(self.compute[device]))

    def changed(self, device: int, declared: DeviceMetadata) -> MetadataTable:
        """The same, but for what one device declares now."""
        counts, memory, compute = self.counts.copy(), self.memory_mb.copy(), self.compute.copy()
        counts[device] = declared.samples
        memory[device], compute[device] = declared.memory_mb, declared.compute
        return MetadataTable(counts, memory, compute)

    @property
    def per_class(self) -> npt.NDArray[np.int64]:
        """(classes,) samples that all devices have together."""
        total: npt.NDArray[np.int64] = self.counts.sum(axis=0)
        return total

    def check_classes(self, names: Sequence[str]) -> None:
        """Raise ConfigError if there is a class that no device has."""
        missing = [names[int(c)] for c in np.flatnonzero(self.per_class == 0)]
        if missing:
            raise ConfigError(
                f"No device has a sample of: {', '.join(missing)}. Nobody can learn it. Take "
                "more devices, more classes per device or another seed, or allow it: "
                "--missing-classes allow"
            )


def noised(
    samples: Sequence[int] | npt.NDArray[np.int64], epsilon: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Counts that may leave a device under ε-differential privacy; at least one stays positive."""
    if not math.isfinite(epsilon) or epsilon <= 0:
        raise ConfigError(f"The epsilon of noised counts must be positive, got {epsilon}.")
    stop = -math.expm1(-epsilon)  # the difference of two geometric numbers is what is wanted
    there = np.asarray(samples, dtype=np.int64)
    noise = rng.geometric(stop, len(there)) - rng.geometric(stop, len(there))
    found = np.maximum(there + noise, 0)
    if not found.any():
        found[int(np.argmax(there + noise))] = 1
    return tuple(found.tolist())


class NoisedCounts:
    """What a device of its own tells of its counts: noise of a secret, and the same again.

    Noise that were drawn anew whenever a server asks could be averaged away.
    """

    def __init__(self, epsilon: float | None, rng: np.random.Generator | None = None) -> None:
        """Without an epsilon counts are told as they are. `rng`: from the system's randomness."""
        self._epsilon, self._rng = epsilon, rng or np.random.default_rng()
        self._told: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, samples: tuple[int, ...]) -> tuple[int, ...]:
        """What is told of these counts; of none at all the truth, which is refused."""
        if self._epsilon is None or not any(samples):
            return samples
        if samples not in self._told:
            self._told[samples] = noised(samples, self._epsilon, self._rng)
        return self._told[samples]
