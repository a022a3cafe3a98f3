"""The user's own module, cut wherever a single tensor is all that goes on.

torch.fx follows one pass through the module and writes down what it does, as a graph of nodes. A
cut is possible behind a node if every later one needs, of all that was computed so far, that one
tensor alone: between two blocks of a residual network, say, and not inside one. What lies between
two such places is a layer. Cuts change no bit: pieces run the same operators on the same numbers,
and share the module's parameters, under the names they have there.

A module whose path depends on the numbers it sees cannot be followed, and is refused.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from garfield.core.errors import ConfigError, InputError
from garfield.split.models.cutting import CutModel, Tail

_FRESH = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm,
    nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d,
)  # fmt: skip
"""Modules whose output is never their input, nor a view of it."""

_IN_PLACE = {
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.ipow, operator.imod, operator.iand, operator.ior, operator.setitem,
}  # fmt: skip


def trace(
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    freeze: int | None = None,
    name: str | None = None,
) -> TracedModel:
    """A module that can be cut; `input_shape` is of one sample, without the batch.

    `freeze` is the last layer that stays as it is, from 0: all but the last one by default.
    """
    was_training = module.training
    try:
        traced = fx.symbolic_trace(module.eval())
        sample = torch.zeros(1, *input_shape)
        with torch.no_grad():
            ShapeProp(traced).propagate(sample)
    except InputError:
        raise
    except Exception as problem:  # the user's own code runs here, and raises what it likes
        first = str(problem).partition("\n")[0][:300]
        raise InputError(
            f"{type(module).__name__} cannot be followed by torch.fx: {first} Give it as an "
            "nn.Sequential of parts, or write its layers as garfield.split.models.cutting.Layer."
        ) from None
    finally:
        module.train(was_training)
    traced.train(was_training)
    cuts = _cuts(traced)
    if len(cuts) < 2:
        raise InputError(
            f"{type(module).__name__} has no place where a single tensor is all that goes on: it "
            "cannot be cut."
        )
    label = name or type(module).__name__
    last = len(cuts) - 2 if freeze is None else freeze
    return TracedModel(label, traced, cuts, freeze=last, input_shape=tuple(input_shape))


@dataclass(frozen=True)
class Cut:
    """A place to cut: behind this many nodes, where only `value` goes on."""

    nodes: int
    value: fx.Node
    name: str


class TracedModel(CutModel):
    """A module that torch.fx has followed. Made by `trace`."""

    def __init__(
        self,
        name: str,
        traced: fx.GraphModule,
        cuts: Sequence[Cut],
        *,
        freeze: int,
        input_shape: tuple[int, ...],
    ) -> None:
        self._traced = traced
        self._nodes = list(traced.graph.nodes)
        first = next(node for node in self._nodes if node.op == "placeholder")
        self._cuts = (Cut(0, first, "input"), *cuts)
        names = [cut.name for cut in cuts]
        super().__init__(name, names, freeze=freeze, input_shape=input_shape)

    def piece(self, start: int, stop: int) -> nn.Module:
        graph = fx.Graph()
        entering, leaving = self._cuts[start], self._cuts[stop]
        known: dict[fx.Node, fx.Node] = {entering.value: graph.placeholder("x")}
        known[entering.value].meta = dict(entering.value.meta)
        inside = self._nodes[entering.nodes : leaving.nodes] if stop > start else []
        if _writes_into(self._traced, inside, entering.value):
            known[entering.value] = graph.call_function(torch.clone, (known[entering.value],))
        for node in self._nodes:
            if node.op == "get_attr" and any(user in inside for user in node.users):
                known[node] = graph.node_copy(node)
        for node in inside:
            if node.op not in ("placeholder", "output", "get_attr") and node not in known:
                known[node] = graph.node_copy(node, lambda old: known[old])
        graph.output(known[leaving.value])
        made = fx.GraphModule(self._traced, graph)
        _own_stateless_modules(made)
        made.__dict__["input_shape"] = self._shape_at(start)  # for `graph.to_json`
        return made

    def tail(self, split: int, freeze: int | None = None, chunk: int | None = None) -> Tail:
        """As for any model; ConfigError if frozen and trained layers share weights."""
        last = self.checked_freeze(freeze)
        frozen = self.piece(0, last + 1).state_dict(keep_vars=True).values()
        trained = self.piece(last + 1, len(self.layers)).state_dict(keep_vars=True)
        ids = {id(each) for each in frozen}
        shared = [key for key, value in trained.items() if id(value) in ids]
        if shared:
            raise ConfigError(
                f"{self.name}: {shared[0]} is used by frozen layers and by trained ones, so it "
                "would change under the frozen ones. Freeze at another layer."
            )
        return super().tail(split, freeze, chunk)

    def _shape_at(self, index: int) -> tuple[int, ...]:
        meta = self._cuts[index].value.meta["tensor_meta"]
        return tuple(meta.shape[1:])


def _cuts(traced: fx.GraphModule) -> list[Cut]:
    """Every place behind which one tensor, with the batch as its first dimension, is needed."""
    nodes = list(traced.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise InputError(f"A module that can be cut takes one tensor, and this one {len(inputs)}.")
    place = {node: index for index, node in enumerate(nodes)}
    last_use = {node: max((place[user] for user in node.users), default=-1) for node in nodes}
    alive: set[fx.Node] = set()
    found: list[Cut] = []
    taken: set[str] = set()
    for index, node in enumerate(nodes):
        if node.op == "output":
            break
        if node.op != "get_attr":
            alive.add(node)
        alive = {each for each in alive if last_use[each] > index}
        if node.op in ("placeholder", "get_attr") or len(alive) != 1:
            continue
        (value,) = alive
        if value.op != "placeholder" and _is_batch(value):
            name = _name(value)
            if found and found[-1].value is value:
                found[-1] = Cut(index + 1, value, found[-1].name)
                continue
            while name in taken:
                name += "_"
            taken.add(name)
            found.append(Cut(index + 1, value, name))
    return found


def _is_batch(value: fx.Node) -> bool:
    meta = value.meta.get("tensor_meta")
    shape = getattr(meta, "shape", None)
    return shape is not None and len(shape) >= 2 and shape[0] == 1


def _name(node: fx.Node) -> str:
    return node.target if node.op == "call_module" and isinstance(node.target, str) else node.name


def _writes_into(traced: fx.GraphModule, inside: Sequence[fx.Node], entering: fx.Node) -> bool:
    """Whether a piece may write into what it is handed, which others may keep."""
    views = {entering}
    for node in inside:
        touched = [each for each in node.all_input_nodes if each in views]
        if not touched:
            continue
        module = traced.get_submodule(str(node.target)) if node.op == "call_module" else None
        writes = (
            bool(getattr(module, "inplace", False))
            or bool(node.kwargs.get("inplace"))
            or (node.op == "call_function" and node.target in _IN_PLACE)
            or (node.op == "call_method" and str(node.target).endswith("_"))
            or (node.op == "call_function" and getattr(node.target, "__name__", "").endswith("_"))
            or (node.op == "call_function" and True in node.args)  # functional.relu(x, True)
        )
        if writes:
            return True
        if not isinstance(module, _FRESH):
            views.add(node)
    return False


def _own_stateless_modules(made: fx.GraphModule) -> None:
    """Copy what has a mode but no weights: one dropout may be frozen here and train there."""
    for target in {str(node.target) for node in made.graph.nodes if node.op == "call_module"}:
        module = made.get_submodule(target)
        if not any(True for _ in module.state_dict()):
            folder, _, last = target.rpartition(".")
            setattr(made.get_submodule(folder), last, copy.copy(module))
