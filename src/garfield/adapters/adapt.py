"""Whatever model a user has, as an adapter."""

from __future__ import annotations

from typing import Any

from garfield.adapters.contract import Adapter
from garfield.core.errors import ConfigError


def adapt(model: Any, *, loss: Any = None, optimizer: Any = None, scheduler: Any = None) -> Adapter:
    """A torch.nn.Module with its loss, optimizer and schedule; an adapter stays as it is."""
    if hasattr(model, "gradient") and hasattr(model, "size"):
        adapter: Adapter = model
        return adapter
    if any(cls.__module__.partition(".")[0] == "torch" for cls in type(model).__mro__):
        from garfield.adapters.torch_adapter import TorchAdapter

        return TorchAdapter(model, loss, optimizer, scheduler)
    raise ConfigError(
        f"A {type(model).__name__} is not a model that Garfield knows. Pass a torch.nn.Module, "
        "or an object with the methods of garfield.adapters.contract.Adapter."
    )
