"""A model whose training loop stays its user's, whatever framework it is written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from garfield.adapters.contract import Adapter, FlatVector
from garfield.core.errors import ConfigError


class UserLoopAdapter(Adapter, Protocol):
    """An adapter around which a user's loop goes on; `step` replaces the user's gradients."""

    def around_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these before and after each of the optimizer's steps, from now on."""

    def own_gradient(self, out: FlatVector) -> None:
        """The gradients that the step under way has begun with, and the float buffers."""


def adapt_user_loop(model: Any, optimizer: Any) -> UserLoopAdapter:
    """An adapter of a torch.nn.Module with its optimizer, or a Keras model with one."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    if "torch" in packages:
        from garfield.adapters.torch_user_loop import TorchUserLoop

        return TorchUserLoop(model, optimizer)
    if "tensorflow" in packages:
        from garfield.adapters.tensorflow_user_loop import TensorFlowUserLoop

        return TensorFlowUserLoop(model, optimizer)
    raise ConfigError(
        f"A {type(model).__name__} is not a model that Garfield knows. Pass a torch.nn.Module, "
        "or a Keras model with TensorFlow underneath."
    )
