"""A model as an explicit list of layers, and the pieces that a cut makes of it.

A layer takes one tensor and gives one tensor, so between any two of them the model can be cut:
the prefix runs beside the store, the tail at the client. Two numbers say where, and they count
differently, as in the HAPI chapter of the thesis and beyond it:

    split    how many layers run at the server: layers[0:split]. 0: none, images travel. The
             thesis counts layers from 0, so its split index is ours less one
    freeze   the index, from 0, of the last frozen layer, as in Table 5.2: no gradient passes it,
             and a split is at most freeze + 1

A piece keeps every layer under the name that it has in the whole model: the keys of its state
dict are those of the whole, and are the same for a prefix here and one at the server. Prefixes
and the frozen part of a tail are in eval mode for good, whatever `train()` says: AlexNet's hold
dropout, the ResNets' batch norm. Pieces share their parameters with the model they are cut from.

Convolutions work on images with channels last, as `garfield.models` does on a CPU; a piece that
is handed a batch lays it out so at its door, hence a cut changes no bit.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Layer:
    """A place between two cuts: modules in a row, each under its name in the whole model."""

    name: str
    steps: tuple[tuple[str, nn.Module], ...]


@dataclass(frozen=True)
class LayerSize:
    """What leaves a layer for one sample."""

    name: str
    shape: tuple[int, ...]
    bytes: int


def layer(name: str, module: nn.Module, **then: nn.Module) -> Layer:
    """A layer of one module, and of those that follow it without a cut between them."""
    return Layer(name, ((name, module), *then.items()))


class Piece(nn.Module):
    """Layers in a row, as one module."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self._steps: list[nn.Module] = []
        for at, (name, module) in enumerate(step for each in layers for step in each.steps):
            own = module if at else _sparing_its_input(module)
            hold(self, name, own)
            self._steps.append(own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = channels_last(x)
        for step in self._steps:
            x = step(x)
        return x


class Frozen(nn.Module):
    """A piece that never trains: in eval mode and without gradients whatever is asked of it."""

    def __init__(self, piece: nn.Module, chunk: int | None = None) -> None:
        super().__init__()
        self._run = (piece,)  # in a tuple, or it would be a part of its own, with keys of its own
        self.chunk = chunk
        """Samples that pass at a time; None for all of a batch at once."""
        _adopt(self, piece)
        self.train(False)
        self.requires_grad_(False)

    @property
    def inner(self) -> nn.Module:
        """The piece itself."""
        return self._run[0]

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Fill the piece; what it holds afterwards is what this module holds."""
        found = self.inner.load_state_dict(state_dict, strict=strict, assign=assign)
        _adopt(self, self.inner)
        return found

    def train(self, mode: bool = True) -> Frozen:
        del mode
        self._run[0].train(False)
        return super().train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Frozen:
        del requires_grad
        return super().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (piece,) = self._run
        with torch.no_grad():
            if self.chunk is None or len(x) <= self.chunk:
                passed: torch.Tensor = piece(x)
            else:
                passed = torch.cat([piece(part) for part in torch.split(x, self.chunk)])
        return passed


class Tail(nn.Module):
    """What the client runs: the rest of the frozen layers, then those that train.

    A checkpoint needs `trained.state_dict()` alone, which is the same wherever the split is.
    """

    def __init__(self, frozen: nn.Module, trained: nn.Module, chunk: int | None = None) -> None:
        super().__init__()
        self._parts = (Frozen(frozen, chunk), trained)
        _adopt(self, frozen)
        _adopt(self, trained)
        trained.requires_grad_(True)
        self.train(self.training)

    @property
    def frozen(self) -> Frozen:
        """The layers between split and freeze, the last frozen one included."""
        return self._parts[0]

    @property
    def trained(self) -> nn.Module:
        """The layers behind the last frozen one."""
        return self._parts[1]

    def train(self, mode: bool = True) -> Tail:
        super().train(mode)
        self.trained.train(mode)
        self.frozen.train(False)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Tail:
        self.trained.requires_grad_(requires_grad)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.trained(self.frozen(x))
        return scores


class CutModel(ABC):
    """A model that can be cut between any two of its layers."""

    def __init__(
        self,
        name: str,
        layers: Sequence[str],
        *,
        freeze: int,
        input_shape: tuple[int, ...],
    ) -> None:
        self.name = name
        self.layers = tuple(layers)
        """Names of the layers, in order."""
        self.input_shape = input_shape
        """Of one sample, without the batch: (channels, height, width)."""
        self.freeze = self.checked_freeze(freeze)
        """The last frozen layer, unless a tail is asked for with another."""

    @abstractmethod
    def piece(self, start: int, stop: int) -> nn.Module:
        """The layers [start:stop] as one module that shares the model's parameters."""

    @property
    def module(self) -> nn.Module:
        """The whole model, uncut."""
        return self.piece(0, len(self.layers))

    def prefix(self, split: int) -> nn.Module:
        """What the server runs: the first `split` layers, frozen."""
        return Frozen(self.piece(0, self.checked_split(split, len(self.layers) - 1)))

    def tail(self, split: int, freeze: int | None = None, chunk: int | None = None) -> Tail:
        """What the client runs; with a chunk, the frozen part so many samples at a time."""
        freeze = self.checked_freeze(freeze)
        split = self.checked_split(split, freeze)
        if chunk is not None and chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {chunk}.")
        end = len(self.layers)
        return Tail(self.piece(split, freeze + 1), self.piece(freeze + 1, end), chunk)

    def max_split(self, freeze: int | None = None) -> int:
        """The last place to cut: behind the last frozen layer."""
        return self.checked_freeze(freeze) + 1

    def checked_freeze(self, freeze: int | None) -> int:
        """The index of the last frozen layer; -1 freezes none. ConfigError if there is no such."""
        freeze = self.freeze if freeze is None else freeze
        last = len(self.layers) - 2
        if not -1 <= freeze <= last:
            raise ConfigError(
                f"{self.name}: freeze must be within -1..{last} (layers count from 0, and the last "
                f"of {len(self.layers)} trains), got {freeze}."
            )
        return freeze

    def checked_split(self, split: int, freeze: int | None = None) -> int:
        """The split; ConfigError if it lies behind the frozen layers."""
        most = (self.freeze if freeze is None else freeze) + 1
        if not 0 <= split <= most:
            raise ConfigError(
                f"{self.name}: split must be within 0..{most} (no layer behind the frozen ones "
                f"runs at the server), got {split}."
            )
        return split

    def sizes(self, input_shape: tuple[int, ...] | None = None) -> list[LayerSize]:
        """What leaves each layer for one sample, seen by passing one through."""
        return [
            LayerSize(name, tuple(x.shape[1:]), x.numel() * x.element_size())
            for name, x in self.passed(torch.zeros(1, *(input_shape or self.input_shape)))
        ]

    def passed(self, batch: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Each layer's name and what leaves it, in eval mode."""
        modes = {module: module.training for module in self.module.modules()}
        try:
            with torch.no_grad():
                for index, name in enumerate(self.layers):
                    batch = self.piece(index, index + 1).eval()(batch)
                    yield name, batch
        finally:
            for module, mode in modes.items():
                module.training = mode


class LayeredModel(CutModel):
    """A model that is its list of layers."""

    def __init__(
        self,
        name: str,
        layers: Sequence[Layer],
        *,
        freeze: int,
        input_shape: tuple[int, ...],
    ) -> None:
        self._layers = tuple(layers)
        names = [each.name for each in layers]
        super().__init__(name, names, freeze=freeze, input_shape=input_shape)

    def piece(self, start: int, stop: int) -> nn.Module:
        return Piece(self._layers[start:stop])


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """The same batch, as convolutions on a CPU like it."""
    if x.dim() == 4 and x.is_cpu:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def hold(owner: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module under a dotted name, in plain modules that stand for the names before it."""
    *folders, last = name.split(".")
    for folder in folders:
        if folder not in owner._modules:
            owner.add_module(folder, nn.Module())
        owner = getattr(owner, folder)
    owner.add_module(last, module)


def _adopt(owner: nn.Module, piece: nn.Module) -> None:
    """Give a module the parts of a piece, under the same names; folders of both become one."""
    for name, own in piece.named_parameters(recurse=False):
        owner.register_parameter(name, own)
    for name, buffer in piece.named_buffers(recurse=False):
        owner.register_buffer(name, buffer)
    for name, child in piece.named_children():
        if type(child) is nn.Module:  # a folder, which stands for a name alone
            if name not in owner._modules:
                owner.add_module(name, nn.Module())
            _adopt(getattr(owner, name), child)
        else:
            owner.add_module(name, child)


def _sparing_its_input(module: nn.Module) -> nn.Module:
    """The same module if it leaves its input alone, else one that does: batches may be kept."""
    if not getattr(module, "inplace", False):
        return module
    sparing = copy.copy(module)
    sparing.inplace = False  # type: ignore[assignment]
    return sparing
