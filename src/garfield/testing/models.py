"""What is promised of every model that is known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from garfield.adapters.contract import Batch
from garfield.models import Model
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

SAMPLES, CLASSES, SEED = 6, 10, 1


def check_model(model: Model) -> None:
    """Hold a model to the contract, on images of random numbers.

    AssertionError names the promise that it breaks.
    """
    keep_all(MODEL_CHECKS, model, model.name)


def classes_out(model: Model) -> None:
    """From each image it makes a score for every class, however many classes there are."""
    import torch

    inputs, _ = _batch(model)
    for classes in (CLASSES, 3):
        with torch.no_grad():
            scores = _built(model, classes).eval()(torch.from_numpy(inputs))
        wanted = (SAMPLES, classes)
        shape = tuple(getattr(scores, "shape", ()))
        shown = f"{inputs.shape} images"
        expect(shape == wanted, f"{shown}, {classes} classes: it returned {shape}, not {wanted}.")
        expect(bool(torch.isfinite(scores).all()), f"{shown}: some scores are not finite.")


def parameters(model: Model) -> None:
    """It has as many parameters as it states, if it states a number."""
    built = _built(model, CLASSES)
    count = sum(p.numel() for p in built.parameters() if p.requires_grad)
    stated = model.parameters
    expect(count, "It has nothing to train.")
    expect(stated in (None, count), f"It states {stated} parameters, and has {count}.")


def _trained(check: Check[Trial]) -> Check[Model]:
    """A check of adapters, on the adapter of a model.

    What is the same every time cannot be asked of a model with dropout.
    """

    def trained(model: Model) -> None:
        import torch

        from garfield.adapters.torch_adapter import TorchAdapter

        def make() -> TorchAdapter:
            module = _built(model, CLASSES)
            optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
            return TorchAdapter(module, optimizer=optimizer)

        if check in _THE_SAME_AGAIN and _draws(_built(model, CLASSES)):
            return
        with torch.random.fork_rng(devices=[]):
            check(Trial(make, _batch(model)))

    trained.__doc__ = f"{promise_of(check)}."
    trained.__name__ = check.__name__
    return trained


_THE_SAME_AGAIN = (gradient_again, step, restored)
MODEL_CHECKS = (
    classes_out, parameters,
    *map(
        _trained,
        (same_weights, gradient_moves_buffers_alone, gradient_again, step, restored, evaluation),
    ),
)  # fmt: skip


def _built(model: Model, classes: int) -> nn.Module:
    """The network itself, always of the same weights."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return model.build(classes, _image(model)[0])


def _batch(model: Model) -> Batch:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((SAMPLES, *_image(model))).astype(np.float32)
    return inputs, rng.integers(0, CLASSES, SAMPLES)


def _image(model: Model) -> tuple[int, int, int]:
    """What it is tried on."""
    if model.image is None:
        raise AssertionError(
            "It does not state what it is made for. Give image=(channels, height, width)."
        )
    return model.image


def _draws(module: nn.Module) -> bool:
    return any("dropout" in type(part).__name__.lower() for part in module.modules())
