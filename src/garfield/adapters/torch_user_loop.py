"""A torch model whose training loop stays its user's: gradients are taken and given in between.

The user's backward pass leaves gradients in the parameters, and the user's optimizer
takes its step; two hooks of the optimizer, which every torch optimizer has, let others
act right before and right after that step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from garfield.adapters.contract import FlatVector
from garfield.adapters.torch_adapter import TorchAdapter, _fill
from garfield.core.errors import ConfigError


class TorchUserLoop(TorchAdapter):
    """A module and the optimizer that its user calls."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError("Pass the optimizer, too: it is where gradients are exchanged.")
        super().__init__(module, optimizer=optimizer)
        self._grad.zero_()  # laid out now: later, it would take the place of the user's gradients

    def around_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these before and after each of the optimizer's steps, from now on."""
        assert self.optimizer is not None

        def begin(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            if any(map(callable, (*arguments[1:], *named.values()))):
                raise ConfigError(
                    "optimizer.step(closure) computes gradients inside of the step, where they "
                    "cannot be exchanged. Call backward() first, and step() without a closure."
                )
            self._collect()
            before()

        self.optimizer.register_step_pre_hook(begin)
        self.optimizer.register_step_post_hook(lambda *_: after())

    def own_gradient(self, out: FlatVector) -> None:
        """What the user's backward pass has left, and the buffers after it."""
        self._into(out[: self.size], self._grad)
        self._read_buffers(out[self.size :])

    def step(self, gradient: FlatVector) -> None:
        """Replace the gradients; the step that is under way takes them from here."""
        _fill(self._grad, gradient)

    def _collect(self) -> None:
        """Bring the gradients home: zero_grad() has let go of the views, by default."""
        for parameter, home in self._homes(self._grad):
            if parameter.grad is None:
                home.zero_()
            elif parameter.grad.data_ptr() != home.data_ptr():
                home.copy_(parameter.grad)
            parameter.grad = home
