"""Who has which samples: the thesis's engine for skewed data (6.4), beside the core's partitions.

Device i of n has r_c classes, and r_s samples of each of them, drawn anew for every class:

    r_c  uniform in 1 .. max_class · i / n
    r_s  uniform in 1 .. min(i², max_samples · i / n)

so early devices are poor and late ones rich. Upper bounds below 1 are 1. Classes, and samples of
a class, are drawn without replacement for one device, but devices do not see each other's draws:
**a sample may lie on several devices, or on none**, which no partition of `garfield.data`
allows. Those (`iid`, `dirichlet`) are taken as they are.

Source: Guirguis, EPFL 2023, section 6.4 ("Non-iidness").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ConfigError, InputError
from garfield.core.types import Indices
from garfield.data import partitions

Counts = npt.NDArray[np.int64]
"""(devices, classes) samples that each device has of each class."""

SKEWED = "skewed"


def skewed_counts(
    sizes: Any, *, devices: int, max_class: int, max_samples: int, rng: np.random.Generator
) -> Counts:
    """How many samples of each class every device gets; `sizes` is how many there are of each."""
    sizes = np.asarray(sizes, dtype=np.int64)
    for name, value in (
        ("devices", devices),
        ("max_class", max_class),
        ("max_samples", max_samples),
    ):
        if value < 1:
            raise ConfigError(f"{SKEWED}: {name} must be at least 1, got {value}.")
    there = np.flatnonzero(sizes)
    if not len(there):
        raise InputError("There is no sample to give to a device.")
    device = np.arange(1, devices + 1, dtype=np.int64)[:, None]  # i of the formulas
    most_classes = np.clip(max_class * device // devices, 1, len(there))
    most_samples = np.maximum(1, np.minimum(device**2, max_samples * device // devices))
    classes = rng.integers(1, most_classes, endpoint=True)  # (devices, 1): r_c
    # a random order of the classes for each device: the first r_c are its own
    order = rng.random((devices, len(there))).argsort(axis=1).argsort(axis=1)
    samples = rng.integers(1, most_samples, size=order.shape, endpoint=True)  # r_s
    counts = np.zeros((devices, len(sizes)), dtype=np.int64)
    counts[:, there] = np.where(order < classes, np.minimum(samples, sizes[there]), 0)
    return counts


def skewed(
    labels: Any, *, devices: int, max_class: int, max_samples: int, rng: np.random.Generator
) -> list[Indices]:
    """One ascending array of indices per device, none of them empty, some of them shared."""
    labels = np.asarray(labels)
    of_class = [np.flatnonzero(labels == label) for label in range(int(labels.max(initial=-1)) + 1)]
    counts = skewed_counts(
        [len(each) for each in of_class],
        devices=devices, max_class=max_class, max_samples=max_samples, rng=rng,
    )  # fmt: skip
    return [
        np.sort(
            np.concatenate(
                [rng.choice(of_class[c], wanted[c], replace=False) for c in np.flatnonzero(wanted)]
            )
        )
        for wanted in counts
    ]


def divided(
    how: str,
    labels: Any,
    *,
    devices: int,
    max_class: int,
    max_samples: int,
    rng: np.random.Generator,
) -> list[Indices]:
    """The samples of each device: "skewed", or a partition of the core, as in "dirichlet(alpha=1)".

    `max_class` and `max_samples` are those of "skewed"; others do not know them.
    """
    if how == SKEWED:
        return skewed(
            labels, devices=devices, max_class=max_class, max_samples=max_samples, rng=rng
        )
    if how.partition("(")[0] not in partitions.PARTITIONS:
        known = ", ".join([SKEWED, *partitions.PARTITIONS])
        raise ConfigError(f"{how} is not a partition. There are: {known}.")
    return partitions.parse(how)(labels, workers=devices, rng=rng)


def class_counts(labels: Any, shares: list[Indices], classes: int) -> Counts:
    """How many samples of each class these shares hold."""
    labels = np.asarray(labels)
    return np.stack([np.bincount(labels[share], minlength=classes) for share in shares]).astype(
        np.int64
    )
