"""What a node needs of a model, whatever framework it is written in.

A model is one flat float32 vector: its trainable parameters first (`size` of
them), then its float buffers such as batch-norm statistics (`tail`). Gradients
have the same layout, the tail being the buffers after the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FlatVector = npt.NDArray[np.float32]
Batch = tuple[Any, Any]
"""Inputs and targets, as the framework takes them."""
Layout = Sequence[tuple[str, Sequence[int]]]
"""Names and canonical shapes of a model's tensors, in the order of the vector."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, as a server of any framework runs it."""

    learning_rate: float
    learning_rate_decay: float = 0.0
    """Step t has the rate learning_rate / (1 + learning_rate_decay · t)."""
    momentum: float = 0.0
    weight_decay: float = 0.0


class Adapter(Protocol):
    """A model, its loss and, at a server, its optimizer."""

    size: int
    tail: int

    @property
    def layout(self) -> Layout:
        """What the vector is made of, parameters first."""

    def read(self, out: FlatVector) -> None:
        """Write parameters and buffers into `out`, of length size + tail."""

    def write(self, vector: FlatVector) -> None:
        """Take parameters and buffers from `vector`."""

    def write_body(self, body: FlatVector) -> None:
        """Take the parameters alone."""

    def write_tail(self, tail: FlatVector) -> None:
        """Take the buffers alone."""

    def gradient(self, batch: Batch, out: FlatVector) -> float:
        """Gradient of the loss on a batch, and the buffers after it, into `out`; the loss."""

    def step(self, gradient: FlatVector) -> None:
        """Let the optimizer take a step along a gradient of length `size`."""

    def skip(self, steps: int) -> None:
        """Let the learning rate's schedule go on by steps that others have taken."""

    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, float]:
        """The score by its metric (the share of right predictions, if it was told no other) and
        the mean loss, in evaluation mode."""

    def tensors(self) -> Mapping[str, npt.NDArray[Any]]:
        """All that the framework would save of the model, under its own names and shapes."""

    def state(self) -> Mapping[str, Any]:
        """Optimizer and schedule, for a checkpoint."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """The reverse of `state`."""
