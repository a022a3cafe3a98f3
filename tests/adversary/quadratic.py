"""A model of three numbers whose gradients are known: each worker pulls it to a centre of its own.

The loss of worker i at step t is |x − c_i − noise(i, t)|² / 2, so that its gradient is
x − c_i − noise(i, t). The last number is a buffer, as batch-norm's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from garfield.adapters.contract import Batch, FlatVector, Layout

SIZE, TAIL = 2, 1
LENGTH = SIZE + TAIL
RATE = 0.25


class Centres:
    """The batches of one worker."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = [seed, crc32(name.encode())]
        self._centre = np.random.default_rng(self._seed).standard_normal(LENGTH)

    def batch(self, step: int) -> Batch:
        noise = np.random.default_rng([*self._seed, step]).standard_normal(LENGTH)
        return self._centre + 0.1 * noise, None


class Quadratic:
    """An adapter with plain gradient descent."""

    size, tail = SIZE, TAIL
    layout: Layout = (("x", (SIZE,)), ("buffer", (TAIL,)))

    def __init__(self) -> None:
        self._vector = np.zeros(LENGTH, np.float32)

    def read(self, out: FlatVector) -> None:
        out[:] = self._vector

    def write(self, vector: FlatVector) -> None:
        self._vector[:] = vector

    def write_body(self, body: FlatVector) -> None:
        self._vector[:SIZE] = body

    def write_tail(self, tail: FlatVector) -> None:
        self._vector[SIZE:] = tail

    def gradient(self, batch: Batch, out: FlatVector) -> float:
        centre = batch[0]
        out[:SIZE] = self._vector[:SIZE] - centre[:SIZE]
        out[SIZE:] = 0.9 * self._vector[SIZE:] + 0.1 * centre[SIZE:]
        return float(np.square(out[:SIZE], dtype=np.float64).sum() / 2)

    def step(self, gradient: FlatVector) -> None:
        self._vector[:SIZE] -= np.float32(RATE) * gradient

    def skip(self, steps: int) -> None:
        """Its rate is always the same."""

    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, float]:
        return 0.0, 0.0

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""
