"""A model whose training loop stays its user's, whatever framework it is written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from garfield.adapters.contract import Adapter, FlatVector
from garfield.core.errors import ConfigError


class InStep(Adapter, Protocol):
    """An adapter around which a user's loop goes on; `step` replaces the user's gradients."""

    def around_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """From now on, call these before and after each of the optimizer's steps."""

    def own_gradient(self, out: FlatVector) -> None:
        """The gradients that the step under way has begun with, and the float buffers."""


def in_step(model: Any, optimizer: Any) -> InStep:
    """For a torch.nn.Module with its optimizer, or a Keras model, compiled or with one."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    if "torch" in packages:
        from garfield.adapters.torch_in_step import TorchInStep

        return TorchInStep(model, optimizer)
    if "tensorflow" in packages:
        from garfield.adapters.tensorflow_in_step import TensorFlowInStep

        return TensorFlowInStep(model, optimizer)
    raise ConfigError(
        f"A {type(model).__name__} is not a model that Garfield knows. Pass a torch.nn.Module, "
        "or a Keras model with TensorFlow underneath."
    )
