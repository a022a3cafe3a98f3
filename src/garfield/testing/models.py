"""What is promised of every model: of one known by name, and of the user's on their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.adapters.contract import Batch
from garfield.adapters.metrics import ACCURACY, Metric
from garfield.models import Model, build_model
from garfield.testing.adapters import (
    Trial,
    evaluation,
    gradient_again,
    gradient_moves_buffers_alone,
    restored,
    same_weights,
    step,
)
from garfield.testing.promises import Check, expect, keep_all, promise_of

if TYPE_CHECKING:
    from torch import nn

    from garfield.adapters.torch_adapter import TorchAdapter

SAMPLES, CLASSES, SEED = 6, 10, 1
_LOWERED = 1e-3  # of the loss, by one step: far more than float32's rounding


@dataclass(frozen=True)
class Tried:
    """A model, and what it is tried on."""

    model: Model
    batch: Batch
    """At least four samples."""
    classes: tuple[int, ...]
    """How many classes it is made for, each in turn; empty if targets are no numbers of classes."""
    channels: int | None = None
    loss: Any = None
    """Of outputs and targets; None: cross-entropy."""
    metric: Metric = ACCURACY

    def built(self, classes: int | None = None) -> nn.Module:
        """The network itself, always of the same weights."""
        classes = classes or (self.classes[0] if self.classes else 1)
        return build_model(self.model, classes=classes, channels=self.channels, seed=SEED)


def on_images(model: Model) -> Tried:
    """A model on random numbers of the shape that it is made for; ValueError if it states none."""
    if model.image is None:
        raise ValueError("It does not state image=(channels, height, width)")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((SAMPLES, *model.image)).astype(np.float32)
    return Tried(model, (inputs, rng.integers(0, CLASSES, SAMPLES)), (CLASSES, 3), model.image[0])


def check_model(model: Model) -> None:
    """Hold a model to the contract, on images of random numbers.

    AssertionError names the promise that it breaks.
    """
    keep_all(MODEL_CHECKS, on_images(model), model.name)


def classes_out(tried: Tried) -> None:
    """From each sample it makes a score for every class, however many classes there are."""
    import torch

    inputs, targets = tried.batch
    for classes in tried.classes if targets.ndim == 1 and tried.loss is None else ():
        with torch.no_grad():
            scores = tried.built(classes).eval()(torch.from_numpy(inputs))
        wanted = (len(inputs), classes)
        shape = tuple(getattr(scores, "shape", ()))
        shown = f"{inputs.shape} samples"
        expect(shape == wanted, f"{shown}, {classes} classes: it returned {shape}, not {wanted}.")
        expect(bool(torch.isfinite(scores).all()), f"{shown}: some scores are not finite.")


def finite(tried: Tried) -> None:
    """Its loss on a batch is a finite number, and so is every part of the gradient."""
    gradient, loss = _gradient(tried, _adapter(tried))
    expect(np.isfinite(loss), f"The loss is {loss}.")
    bad = int((~np.isfinite(gradient)).sum())
    expect(not bad, f"{bad} of the gradient's {gradient.size} numbers are not finite.")


def parameters(tried: Tried) -> None:
    """It has as many parameters as it states, if it states a number."""
    count = sum(p.numel() for p in tried.built().parameters() if p.requires_grad)
    stated = tried.model.parameters
    expect(count, "It has nothing to train.")
    expect(stated in (None, count), f"It states {stated} parameters, and has {count}.")


def _trained(check: Check[Trial]) -> Check[Tried]:
    """A check of adapters, on the adapter of a model.

    What is the same every time cannot be asked of a model with dropout.
    """

    def trained(tried: Tried) -> None:
        import torch

        def make() -> TorchAdapter:
            return _adapter(tried, rate)

        if check in _THE_SAME_AGAIN and _draws(tried.built()):
            return
        with torch.random.fork_rng(devices=[]):
            gradient, loss = _gradient(tried, _adapter(tried))
            slope = float(np.square(gradient, dtype=np.float64).sum())
            rate = _LOWERED * abs(loss) / slope if slope else _LOWERED
            check(Trial(make, tried.batch, tried.metric is ACCURACY))

    trained.__doc__ = f"{promise_of(check)}."
    trained.__name__ = check.__name__
    return trained


def _adapter(tried: Tried, rate: float | None = None) -> TorchAdapter:
    import torch

    from garfield.adapters.torch_adapter import TorchAdapter

    module = tried.built()
    optimizer = None if rate is None else torch.optim.SGD(module.parameters(), lr=rate)
    return TorchAdapter(module, tried.loss, optimizer, metric=tried.metric)


def _gradient(tried: Tried, adapter: TorchAdapter) -> tuple[Any, float]:
    out = np.empty(adapter.size + adapter.tail, np.float32)
    loss = adapter.gradient(tried.batch, out)
    return out[: adapter.size], loss


_THE_SAME_AGAIN = (gradient_again, step, restored)
MODEL_CHECKS = (
    classes_out, finite, parameters,
    *map(
        _trained,
        (same_weights, gradient_moves_buffers_alone, gradient_again, step, restored, evaluation),
    ),
)  # fmt: skip


def _draws(module: nn.Module) -> bool:
    return any("dropout" in type(part).__name__.lower() for part in module.modules())
