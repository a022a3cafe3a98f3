"""Who gets which samples: from labels to one array of indices per worker.

    iid         shuffled and dealt out evenly, every sample to somebody
    dirichlet   each class is dealt out in proportions drawn from Dir(alpha), every sample
                to somebody: the smaller alpha, the fewer classes a worker sees.
                Hsu, Qi and Brown, 2019
    similarity  a share gamma of all samples is dealt as iid does, the rest sorted by label and
                cut into one piece for each worker: 1 is iid, 0 as unlike as can be. Every sample
                to somebody. Karimireddy et al., ICML 2020 ("SCAFFOLD", section 7)
    one-class   worker i gets class i mod c and no other; workers of one class share it
                evenly; with fewer workers than classes, the last classes go to nobody

A partition is a pure function of the labels, the number of workers and the generator.
No sample goes to two workers, and a worker that would get none is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import Within
from garfield.core.errors import ConfigError, InputError
from garfield.core.naming import parse_call
from garfield.core.registry import Parameters, Registry
from garfield.core.types import Indices

PARTITIONS: Registry[Partition] = Registry("a partition")

_DRAWS = 100  # Dirichlet proportions that leave somebody with nothing are drawn again


@dataclass(frozen=True, repr=False)
class Partition:
    """One way to deal out samples, with its parameters."""

    name: str
    function: Callable[..., list[Indices]]
    complete: bool
    """Every sample goes to somebody."""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"<partition {self.name}({params})>" if params else f"<partition {self.name}>"

    def bind(self, **params: Any) -> Partition:
        """The same partition with some parameters set: ``dirichlet.bind(alpha=0.1)``."""
        Parameters(self.name, self.function, frozenset({"workers", "rng"})).check(params)
        return replace(self, params={**self.params, **params})

    def __call__(self, labels: Any, *, workers: int, rng: np.random.Generator) -> list[Indices]:
        """One ascending array of indices per worker, none of them empty."""
        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise InputError(
                f"{self.name} takes whole-numbered labels in one dimension, "
                f"got {labels.dtype} {labels.shape}."
            )
        if workers < 1:
            raise ConfigError(f"{self.name}: workers must be at least 1, got {workers}.")
        if workers > len(labels):
            raise ConfigError(
                f"{self.name} cannot give each of {workers} workers one of {len(labels)} samples. "
                f"Start at most {len(labels)} workers."
            )
        parts = self.function(labels, workers=workers, rng=rng, **self.params)
        return [np.sort(part) for part in parts]


def partition(name: str, *, complete: bool) -> Callable[[Callable[..., list[Indices]]], Partition]:
    """Register a function ``(labels, *, workers, rng, ...) -> indices per worker``."""

    def register(function: Callable[..., list[Indices]]) -> Partition:
        return PARTITIONS.add(name, Partition(name, function, complete))

    return register


def parse(text: str) -> Partition:
    """The partition that this text names: "iid", "dirichlet(alpha=0.1)"."""
    name, params = parse_call(text, example="dirichlet(alpha=0.1)")
    return PARTITIONS[name].bind(**params)


Numbers = npt.NDArray[np.integer[Any]]


@partition("iid", complete=True)
def iid(labels: Numbers, *, workers: int, rng: np.random.Generator) -> list[Indices]:
    return np.array_split(rng.permutation(len(labels)), workers)


@partition("dirichlet", complete=True)
def dirichlet(
    labels: Numbers, *, workers: int, rng: np.random.Generator, alpha: float = 1.0
) -> list[Indices]:
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ConfigError(f"dirichlet.alpha must be a number, got {alpha!r}.")
    if not isfinite(alpha) or alpha <= 0:
        raise ConfigError(f"dirichlet.alpha must be positive and finite, got {alpha}.")
    _, sizes = np.unique(labels, return_counts=True)
    for _ in range(_DRAWS):
        shares = rng.dirichlet(np.full(workers, float(alpha)), len(sizes))  # (classes, workers)
        counts = rng.multinomial(sizes, shares)
        if counts.sum(axis=0).all():
            return _dealt(labels, counts, rng)
    empty = int((counts.sum(axis=0) == 0).sum())
    raise ConfigError(
        f"dirichlet(alpha={alpha}) left somebody without a sample in each of {_DRAWS} draws, "
        f"{empty} of {workers} workers in the last one ({len(labels)} samples). "
        "Raise alpha, or start fewer workers."
    )


@partition("similarity", complete=True)
def similarity(
    labels: Numbers,
    *,
    workers: int,
    rng: np.random.Generator,
    gamma: Annotated[float, Within(0, 1)] = 0.5,
) -> list[Indices]:
    drawn = rng.permutation(len(labels))
    alike, rest = np.split(drawn, [round(gamma * len(labels))])
    unlike = rest[np.argsort(labels[rest], kind="stable")]
    # who gets one more of the alike gets none more of the others: nobody is left empty
    more = np.array([len(part) for part in np.array_split(unlike, workers)][::-1])
    pieces = np.split(unlike, np.cumsum(more)[:-1])
    hands = zip(np.array_split(alike, workers), pieces, strict=True)
    return [np.concatenate(hand) for hand in hands]


@partition("one-class", complete=False)
def one_class(labels: Numbers, *, workers: int, rng: np.random.Generator) -> list[Indices]:
    classes, sizes = np.unique(labels, return_counts=True)
    counts = np.zeros((len(classes), workers), dtype=np.intp)
    for number, (label, size) in enumerate(zip(classes[:workers], sizes, strict=False)):
        sharers = np.arange(number, workers, len(classes))
        share, more = divmod(int(size), len(sharers))
        if not share:
            raise ConfigError(
                f"one-class cannot share the {size} samples of class {label} between "
                f"{len(sharers)} of {workers} workers. Start fewer workers."
            )
        counts[number, sharers] = share
        counts[number, sharers[:more]] += 1
    return _dealt(labels, counts, rng)


def _dealt(labels: Numbers, counts: Numbers, rng: np.random.Generator) -> list[Indices]:
    """counts[c, i] random samples of class c to worker i, none of them twice."""
    hands: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for label, wanted in zip(np.unique(labels), counts, strict=True):
        of_class = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(of_class, np.cumsum(wanted)), strict=False):
            hand.append(part)
    return [np.concatenate(hand) for hand in hands]
