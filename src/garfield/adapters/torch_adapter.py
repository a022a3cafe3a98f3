"""A torch.nn.Module as one flat vector.

Parameters and gradients are laid out as views of two flat buffers, so that
reading or writing a model is a single copy, and the backward pass writes
straight into the vector that travels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from garfield.adapters.contract import SGD, Batch, FlatVector
from garfield.adapters.metrics import ACCURACY, Metric, Scoring
from garfield.core.errors import ConfigError

Loss = Callable[[Tensor, Tensor], Tensor]
NewOptimizer = Callable[[Iterable[nn.Parameter], SGD], torch.optim.Optimizer]
"""An optimizer of parameters, from what the settings say of descent."""


def plain_sgd(parameters: Iterable[nn.Parameter], sgd: SGD) -> torch.optim.Optimizer:
    """Descent as the settings have it."""
    return torch.optim.SGD(
        parameters, lr=sgd.learning_rate, momentum=sgd.momentum, weight_decay=sgd.weight_decay
    )


class TorchAdapter:
    """Implements `Adapter` for PyTorch, on the device that the module is on."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: Any = None,
        metric: Metric = ACCURACY,
    ) -> None:
        self.module, self.loss = module, loss or nn.CrossEntropyLoss()
        self.metric = metric
        self.optimizer, self.scheduler = optimizer, scheduler
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._buffers = [b for b in module.buffers() if b.is_floating_point()]
        self._variances = {id(b) for name, b in module.named_buffers() if name.endswith("var")}
        self._check()
        self.size = sum(p.numel() for p in self._parameters)
        self.tail = sum(b.numel() for b in self._buffers)
        self.device = self._parameters[0].device
        self._flat = torch.empty(self.size, device=self.device)
        self._laid_grad: Tensor | None = None
        self._lay_out()

    @classmethod
    def with_sgd(
        cls,
        module: nn.Module,
        sgd: SGD,
        *,
        loss: Loss | None = None,
        metric: Metric = ACCURACY,
        new_optimizer: NewOptimizer = plain_sgd,
    ) -> TorchAdapter:
        """The module, trained by that descent, or by an optimizer of one's own at its rates."""
        optimizer = new_optimizer(module.parameters(), sgd)
        decreasing = None
        if sgd.learning_rate_decay:
            decreasing = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 1 / (1 + sgd.learning_rate_decay * step)
            )
        return cls(module, loss, optimizer, decreasing, metric)

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes, in the order of the vector."""
        names = {id(t): name for name, t in self.module.named_parameters(remove_duplicate=False)}
        names |= {id(t): name for name, t in self.module.named_buffers()}
        laid = (*self._parameters, *self._buffers)
        return [(names[id(tensor)], tuple(tensor.shape)) for tensor in laid]

    def read(self, out: FlatVector) -> None:
        self._into(out[: self.size], self._flat)
        self._read_buffers(out[self.size :])

    def write(self, vector: FlatVector) -> None:
        self.write_body(vector[: self.size])
        self.write_tail(vector[self.size :])

    def write_body(self, body: FlatVector) -> None:
        with torch.no_grad():
            _fill(self._flat, body)

    def write_tail(self, tail: FlatVector) -> None:
        at = 0
        with torch.no_grad():
            for buffer in self._buffers:
                _fill(buffer, tail[at : at + buffer.numel()].reshape(buffer.shape))
                if id(buffer) in self._variances:
                    buffer.clamp_(min=0.0)  # whatever was sent: a root will be taken of it
                at += buffer.numel()

    def gradient(self, batch: Batch, out: FlatVector) -> float:
        inputs, targets = (_tensor(part, self.device) for part in batch)
        if not self.module.training:  # it asks every layer: 2 % of a small model's gradient
            self.module.train()
        self._grad.zero_()
        loss = self.loss(self.module(inputs), targets)
        loss.backward()
        self._into(out[: self.size], self._grad)
        self._read_buffers(out[self.size :])
        return float(loss.detach())

    def step(self, gradient: FlatVector) -> None:
        if self.optimizer is None:
            raise ConfigError("A server needs an optimizer. Pass one over the model's parameters.")
        _fill(self._grad, gradient)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def skip(self, steps: int) -> None:
        if self.scheduler is None:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*before `optimizer.step")  # as meant here
            for _ in range(steps):
                self.scheduler.step()

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, float]:
        self.module.eval()
        scoring, count = Scoring(self.metric), 0
        loss = 0.0
        for batch in batches:
            inputs, targets = (_tensor(part, self.device) for part in batch)
            outputs = self.module(inputs)
            scoring.take(outputs, targets)
            loss += float(self.loss(outputs, targets)) * len(targets)
            count += len(targets)
        return (scoring.score(torch.cat) if count else 0.0), loss / max(count, 1)

    def tensors(self) -> Mapping[str, npt.NDArray[Any]]:
        state = self.module.state_dict()
        return {name: part.detach().cpu().numpy().copy() for name, part in state.items()}

    def state(self) -> Mapping[str, Any]:
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        return {name: part.state_dict() for name, part in parts.items() if part is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        strange = [str(name) for name in state if name not in parts]
        if strange:
            raise ConfigError(f"There is no {strange[0]} in the state of a torch model.")
        for name, part in parts.items():
            if part is not None and name in state:
                _load(part, state[name])

    # -- layout -------------------------------------------------------------------------

    def _check(self) -> None:
        if not self._parameters:
            raise ConfigError("The model has no trainable parameters.")
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ConfigError(
                    f"Parameter {name} is {parameter.dtype}. Vectors travel as float32: "
                    "call model.float() first."
                )

    def _lay_out(self) -> None:
        """Make every parameter a view of the flat buffer."""
        with torch.no_grad():
            for parameter, home in self._homes(self._flat):
                home.copy_(parameter)
                parameter.data = home

    @property
    def _grad(self) -> Tensor:
        """All gradients, one after the other; a model that is only evaluated has none."""
        if self._laid_grad is None:
            self._laid_grad = torch.zeros(self.size, device=self.device)
            for parameter, home in self._homes(self._laid_grad):
                parameter.grad = home
        return self._laid_grad

    def _homes(self, flat: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Each parameter, and its part of a flat vector in its shape."""
        at = 0
        for parameter in self._parameters:
            yield parameter, flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()

    def _read_buffers(self, out: FlatVector) -> None:
        at = 0
        for buffer in self._buffers:
            self._into(out[at : at + buffer.numel()], buffer.reshape(-1))
            at += buffer.numel()

    @staticmethod
    def _into(out: FlatVector, tensor: Tensor) -> None:
        torch.from_numpy(out).copy_(tensor.detach())


def _load(part: Any, state: Any) -> None:
    try:
        part.load_state_dict(state)
    except Exception as problem:  # whatever torch stumbles over in what is not its own
        kind = type(part).__name__
        raise ConfigError(f"The state is not one of {kind}: {problem!r:.160}.") from None


def _fill(tensor: Tensor, values: FlatVector) -> None:
    if tensor.device.type == "cpu":
        np.copyto(tensor.detach().numpy(), values)  # torch would warn of read-only values
    else:
        tensor.copy_(torch.tensor(values))


def _tensor(part: Any, device: torch.device) -> Tensor:
    tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.asarray(part))
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()  # the copy then runs beside the computation (thesis 3.4.4)
    return tensor.to(device, non_blocking=True)
