"""Losses for targets that are numbers to come close to, and losses of the user's own."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from garfield.core.errors import ConfigError, InputError


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error."""
    return functional.mse_loss(*_alike(outputs, targets))


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean absolute error."""
    return functional.l1_loss(*_alike(outputs, targets))


def as_loss(name: str, given: Any) -> Any:
    """A loss that is called with outputs and targets: a class is called first."""
    made = given() if isinstance(given, type) else given
    if not callable(made):
        raise ConfigError(
            f"The loss {name} is a {type(made).__name__}. It must be a function of outputs and "
            "targets, or a class of such."
        )
    return made


def _alike(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one shape: torch would subtract every target from every output of a column."""
    if outputs.shape == (*targets.shape, 1):
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise InputError(
            f"Outputs have the shape {tuple(outputs.shape)} and targets {tuple(targets.shape)}. "
            "The model must give as many numbers for each sample as there are targets."
        )
    return outputs, targets.to(outputs.dtype)
