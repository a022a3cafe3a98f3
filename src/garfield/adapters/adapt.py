"""Whatever model a user has, as an adapter."""

from __future__ import annotations

from typing import Any

from garfield.adapters.contract import Adapter
from garfield.core.errors import ConfigError


def adapt(model: Any, *, loss: Any = None, optimizer: Any = None, scheduler: Any = None) -> Adapter:
    """A torch or TensorFlow model with its loss, optimizer and schedule; an adapter as it is."""
    if hasattr(model, "gradient") and hasattr(model, "size"):
        adapter: Adapter = model
        return adapter
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    if "torch" in packages:  # first: a Keras model with torch underneath is both
        from garfield.adapters.torch_adapter import TorchAdapter

        return TorchAdapter(model, loss, optimizer, scheduler)
    if "tensorflow" in packages:  # Keras models with TensorFlow underneath included
        from garfield.adapters.tensorflow_adapter import TensorFlowAdapter

        return TensorFlowAdapter(model, loss, optimizer, scheduler)
    raise ConfigError(
        f"A {type(model).__name__} is not a model that Garfield knows. Pass a torch.nn.Module, "
        "a Keras model or tf.Module with TensorFlow underneath, or an object with the methods of "
        "garfield.adapters.contract.Adapter."
    )
