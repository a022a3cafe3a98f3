"""What all workers of a training have in common, and how those who lack it get it.

Model, optimizer, whatever else the script names, the place in the data and the number of steps. It
travels by broadcast, from the memory of one worker to that of the others: the structure first, as
a message without code (torch's `weights_only`), then the tensors' bytes, the large ones from
where they are to where they belong, small ones packed together.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from garfield.core.errors import ConfigError
from garfield.elastic.job import random_numbers
from garfield.elastic.job.cursor import Cursor
from garfield.elastic.job.gradient_noise import NoiseScale
from garfield.elastic.job.group import WorkerGroup

FRESH = -1
"""The step of a worker that has nothing yet that others could go on from."""
_SMALL_BYTES = 1 << 16  # below it, a broadcast of its own costs more than a copy
_TENSOR = "garfield.tensor"


class Stateful(Protocol):
    """A scheduler of learning rates, say."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


class TrainingState:
    """The state of one worker."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        cursor: Cursor,
        extra: Mapping[str, Stateful] | None = None,
    ) -> None:
        self.model, self.optimizer, self.extra = model, optimizer, dict(extra or {})
        self.cursor = cursor
        self.step = FRESH
        """Steps of the optimizer that were applied."""
        self.generation = 0
        """The one in which the last of them was."""
        self.reference_step: int | None = None
        """Samples of a step that the learning rate was chosen for."""
        self.noise = NoiseScale()
        """Of the gradients, if it is measured."""

    @property
    def version(self) -> tuple[int, int]:
        """Workers whose versions are equal have the same state; the larger one goes on."""
        return self.step, self.generation

    def state_dict(self) -> dict[str, Any]:
        """All of it; tensors are the ones in use, not copies."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "extra": {name: dict(part.state_dict()) for name, part in self.extra.items()},
            "cursor": self.cursor.state_dict(),
            "step": self.step,
            "generation": self.generation,
            "reference_step": self.reference_step,
            "noise": self.noise.state_dict(),
        }

    def copied(self) -> dict[str, Any]:
        """The same in memory of its own, to be written while training goes on.

        With it, this worker's generators of random numbers.
        """
        copied: dict[str, Any] = _mapped(
            self.state_dict(), lambda tensor: tensor.detach().to("cpu", copy=True)
        )
        return {**copied, "random": random_numbers.captured()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; ConfigError if it is one of another training."""
        self._check(state)
        self.model.load_state_dict(state["model"])
        self._load_all_but_the_model(state)
        random_numbers.restore(state["random"])

    def _check(self, state: Mapping[str, Any]) -> None:
        """Refuse what does not fit, before anything is written over."""
        _require_same(dict(self.model.state_dict()), state["model"])
        self.cursor.moved_to(state["cursor"])
        if set(state["extra"]) != set(self.extra):
            raise ConfigError(
                f"The training to go on with has extra state {sorted(state['extra'])}, "
                f"this worker {sorted(self.extra)}. Name the same on all workers."
            )

    def _load_all_but_the_model(self, state: Mapping[str, Any]) -> None:
        self.cursor = self.cursor.moved_to(state["cursor"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name, part in self.extra.items():
            part.load_state_dict(state["extra"][name])
        self.reference_step = state["reference_step"]
        self.noise.load_state_dict(state["noise"])
        self.step, self.generation = state["step"], state["generation"]

    def exchange(self, group: WorkerGroup, source: int) -> None:
        """Give everybody the source's state.

        A worker that lags behind has nothing to go on from while its own is being written over.
        """
        if group.rank == source:
            structure, tensors = _taken_apart(self.state_dict())
            written = io.BytesIO()
            torch.save(structure, written)
            group.broadcast_bytes(written.getvalue(), source)
            _broadcast(group, tensors, source)
            return
        received = group.broadcast_bytes(None, source)
        structure = torch.load(io.BytesIO(received), weights_only=True)
        self._check(structure)
        mine = self.state_dict()
        if self.version != (structure["step"], structure["generation"]):
            self.step = FRESH
        state, tensors = _put_together(structure, mine, next(self.model.parameters()).device)
        _broadcast(group, tensors, source)
        self._load_all_but_the_model(state)  # which has been received where it belongs


def _broadcast(group: WorkerGroup, tensors: Sequence[Tensor], source: int) -> None:
    large = [each for each in tensors if _is_sent_alone(each)]
    group.broadcast([_bytes(each) for each in large], source)
    for kind in ("cpu", "cuda"):
        small = [
            t for t in tensors if not _is_sent_alone(t) and t.device.type == kind and len(_bytes(t))
        ]
        if small:
            packed = torch.cat([_bytes(each) for each in small])
            group.broadcast([packed], source)
            pieces = torch.split(packed, [len(_bytes(each)) for each in small])
            for each, piece in zip(small, pieces, strict=True):
                each.detach().copy_(piece.clone().view(each.dtype).view(each.shape))


def _is_sent_alone(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() >= _SMALL_BYTES


def _bytes(tensor: Tensor) -> Tensor:
    """Its memory if it is contiguous, else a copy."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _mapped(value: Any, change: Any) -> Any:
    """A nested value with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(each, change) for each in value)
    return value


def _taken_apart(state: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
    """Tensors, in order, and the structure with a description in place of each."""
    tensors: list[Tensor] = []

    def described(tensor: Tensor) -> tuple[Any, ...]:
        tensors.append(tensor)
        return (_TENSOR, tuple(tensor.shape), tensor.dtype, tensor.device.type)

    return _mapped(state, described), tensors


def _put_together(structure: Any, mine: Any, device: torch.device) -> tuple[Any, list[Tensor]]:
    """The structure with a tensor in each place, this worker's own where it has one that fits."""
    tensors: list[Tensor] = []

    def built(part: Any, own: Any) -> Any:
        if _is_description(part):
            _, shape, dtype, kind = part
            fits = isinstance(own, Tensor) and (tuple(own.shape), own.dtype) == (shape, dtype)
            tensors.append(
                own if fits and own.device.type == kind
                else torch.empty(shape, dtype=dtype, device=device if kind != "cpu" else "cpu")
            )  # fmt: skip
            return tensors[-1]
        if isinstance(part, Mapping):
            has = own if isinstance(own, Mapping) else {}
            return {key: built(each, has.get(key)) for key, each in part.items()}
        if isinstance(part, list | tuple):
            known = list(own) if isinstance(own, list | tuple) else []
            known += [None] * (len(part) - len(known))
            return type(part)(built(each, has) for each, has in zip(part, known, strict=False))
        return part

    return built(structure, mine), tensors


def _is_description(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 4 and part[0] == _TENSOR


def _require_same(mine: Mapping[str, Tensor], theirs: Mapping[str, Any]) -> None:
    """The same parameters and buffers, each of the same kind; `theirs` may be described only."""
    here = {name: _kind(tensor) for name, tensor in mine.items()}
    there = {name: _kind(part) for name, part in theirs.items()}
    for name in _in_order(here, there):
        if here.get(name) != there.get(name):
            raise ConfigError(
                f"{name} of the model is {there.get(name, 'missing')} in the training to go on "
                f"with, and {here.get(name, 'missing')} here. Run the same script on all workers."
            )


def _kind(part: Any) -> str:
    shape, dtype = part[1:3] if _is_description(part) else (part.shape, part.dtype)
    return f"{tuple(shape)} of {dtype}"


def _in_order(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    yield from here
    yield from (name for name in there if name not in here)
