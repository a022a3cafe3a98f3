"""What is promised of every adapter, whatever framework its model is written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from garfield.adapters.contract import Adapter, Batch, FlatVector
from garfield.testing.promises import close, expect, keep_all, spread_out


@dataclass(frozen=True)
class Trial:
    """A model to try an adapter on."""

    make: Callable[[], Adapter]
    """A new adapter of a model with an optimizer: the same weights at every call."""
    batch: Batch
    """Inputs and targets that the model takes: at least four samples, as arrays."""
    judged_by_share: bool = True
    """Whether the metric is a share, such as that of right predictions."""


def check_adapter(make: Callable[[], Adapter], batch: Batch) -> None:
    """Hold an adapter to the contract; AssertionError names the promise that it breaks.

    `make` builds an adapter of some model with an optimizer, with the same weights at every
    call; `batch` are inputs and targets that the model takes, at least four samples as arrays.
    The model should be smooth (no ReLU) and without dropout, and the optimizer's first step
    small enough to lower the loss.
    """
    keep_all(ADAPTER_CHECKS, Trial(make, batch), type(make()).__name__)


# -- vectors --------------------------------------------------------------------------------------


def same_weights(trial: Trial) -> None:
    """Two adapters of one model, made in the same way, hold the same vector."""
    same = np.array_equal(_read(trial.make()), _read(trial.make()))
    expect(same, "Give `make` a seed, so that it draws the same weights at every call.")


def layout(trial: Trial) -> None:
    """Its layout names tensors whose numbers are size + tail in all."""
    adapter = trial.make()
    total = sum(prod(shape) for _, shape in adapter.layout)
    expect(total == adapter.size + adapter.tail, f"{adapter.size} + {adapter.tail} is not {total}.")


def round_trip(trial: Trial) -> None:
    """What is written is read back, to the bit; parameters and buffers alone or together."""
    adapter = trial.make()
    first, second = _vectors(adapter)
    adapter.write(first)
    expect(np.array_equal(_read(adapter), first), "write and read differ.")
    adapter.write_body(second[: adapter.size])
    joined = np.concatenate([second[: adapter.size], first[adapter.size :]])
    expect(np.array_equal(_read(adapter), joined), "write_body writes more or less than it should.")
    adapter.write_tail(second[adapter.size :])
    expect(np.array_equal(_read(adapter), second), "write_tail writes more or less than it should.")


def own_memory(trial: Trial) -> None:
    """A vector that changes after it was written, or was read, does not change the model."""
    adapter = trial.make()
    vector = _vectors(adapter)[0]
    adapter.write(vector)
    kept = vector.copy()
    vector[:] = 7
    out = _read(adapter)
    expect(np.array_equal(out, kept), "The model is a view of what was written.")
    out[:] = 7
    expect(np.array_equal(_read(adapter), kept), "What was read is a view of the model.")


def any_memory(trial: Trial) -> None:
    """A read-only vector that starts anywhere in memory can be written."""
    adapter = trial.make()
    whole = np.concatenate([np.zeros(3, np.float32), _vectors(adapter)[0]])
    whole.flags.writeable = False
    for skip in range(4):
        vector = whole[skip : skip + adapter.size + adapter.tail]
        adapter.write(vector)
        expect(np.array_equal(_read(adapter), vector), f"It differs {skip} numbers further.")


# -- gradients ------------------------------------------------------------------------------------


def slope(trial: Trial) -> None:
    """The gradient is the slope of the loss that it returns."""
    adapter = trial.make()
    start = _read(adapter)
    size = adapter.size
    gradient = _gradient(adapter, trial.batch)[0][:size].astype(np.float64)
    along = spread_out(1, size, seed=1, dtype=np.float64)[0]
    for way in (gradient, along):
        way = way / np.linalg.norm(way)
        losses = []
        for side in (1e-2, -1e-2):
            moved = start.copy()
            moved[:size] += (side * way).astype(np.float32)
            adapter.write(moved)
            losses.append(_gradient(adapter, trial.batch)[1])
        found, told = (losses[0] - losses[1]) / 2e-2, float(gradient @ way)
        limit = 0.02 * np.linalg.norm(gradient) + 1e-4
        wrong = f"The loss changes by {found:g}, and the gradient says {told:g}."
        expect(abs(found - told) <= limit, wrong)


def gradient_moves_buffers_alone(trial: Trial) -> None:
    """A gradient leaves the parameters as they are, and ends in the buffers after its batch."""
    adapter = trial.make()
    before = _read(adapter)
    gradient, _ = _gradient(adapter, trial.batch)
    after, size = _read(adapter), adapter.size
    expect(np.array_equal(after[:size], before[:size]), "The parameters have moved.")
    expect(np.array_equal(gradient[size:], after[size:]), "The tail is not that of the model.")


def gradient_again(trial: Trial) -> None:
    """The same model and batch give the same gradient and loss, to the bit."""
    adapter = trial.make()
    start = _read(adapter)
    first, loss = _gradient(adapter, trial.batch)
    adapter.write(start)
    again, same = _gradient(adapter, trial.batch)
    expect(np.array_equal(first, again) and loss == same, "They differ.")


# -- training -------------------------------------------------------------------------------------


def step(trial: Trial) -> None:
    """A step along the gradient lowers the loss, and moves the parameters alone."""
    adapter = trial.make()
    gradient, loss = _gradient(adapter, trial.batch)
    before, size = _read(adapter), adapter.size
    adapter.step(gradient[:size])
    after = _read(adapter)
    expect(not np.array_equal(after[:size], before[:size]), "The parameters have not moved.")
    expect(np.array_equal(after[size:], before[size:]), "The buffers have moved.")
    lower = _gradient(adapter, trial.batch)[1]
    expect(lower < loss, f"The loss was {loss:g} and is {lower:g}.")


def skipping(trial: Trial) -> None:
    """Skipping steps moves the schedule of the learning rate, and no part of the model."""
    adapter = trial.make()
    before = _read(adapter)
    adapter.skip(3)
    expect(np.array_equal(_read(adapter), before), "The model has moved.")


def restored(trial: Trial) -> None:
    """Training goes on from a saved model and state as if nothing had happened."""
    whole, first, second = trial.make(), trial.make(), trial.make()
    _train(whole, trial.batch, 6)
    _train(first, trial.batch, 3)
    second.write(_read(first))
    second.restore(first.state())
    _train(second, trial.batch, 3)
    expect(np.array_equal(_read(second), _read(whole)), "After three more steps, models differ.")


def evaluation(trial: Trial) -> None:
    """Accuracy and loss are means over all samples, and evaluating moves nothing."""
    adapter = trial.make()
    before = _read(adapter)
    inputs, targets = trial.batch
    accuracy, loss = adapter.evaluate([trial.batch])
    parts = [(inputs[:1], targets[:1]), (inputs[1:], targets[1:])]
    in_parts = adapter.evaluate(parts)
    within = not trial.judged_by_share or 0 <= accuracy <= 1
    expect(within, f"The share of right predictions is {accuracy}.")
    expect(close(in_parts, (accuracy, loss), [loss], 1e-4), f"In parts of 1 and more: {in_parts}.")
    expect(np.array_equal(_read(adapter), before), "The model has moved.")
    expect(adapter.evaluate([]) == (0.0, 0.0), "Of nothing at all, both should be 0.")


ADAPTER_CHECKS = (
    same_weights, layout, round_trip, own_memory, any_memory, slope, gradient_moves_buffers_alone,
    gradient_again, step, skipping, restored, evaluation,
)  # fmt: skip


def _read(adapter: Adapter) -> FlatVector:
    out = np.empty(adapter.size + adapter.tail, np.float32)
    adapter.read(out)
    return out


def _vectors(adapter: Adapter) -> Any:
    """Two vectors; positive, as the variances among the buffers must be."""
    return np.abs(spread_out(2, adapter.size + adapter.tail, seed=0))


def _gradient(adapter: Adapter, batch: Batch) -> tuple[FlatVector, float]:
    out = np.empty(adapter.size + adapter.tail, np.float32)
    return out, adapter.gradient(batch, out)


def _train(adapter: Adapter, batch: Batch, steps: int) -> None:
    for _ in range(steps):
        adapter.step(_gradient(adapter, batch)[0][: adapter.size])
