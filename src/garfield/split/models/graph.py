"""The first layers of a user's own module as JSON that a server can check before it runs them.

    {"format": "garfield-graph", "version": 1, "input": [3, 224, 224], "output": 2, "nodes": [
      {"op": "conv2d", "name": "stem.conv", "from": [0], "in_channels": 3, …},
      {"op": "relu", "from": [1]}]}

Value 0 is the input and value i what node i puts out; a node takes values that are there already,
so a graph cannot loop. Operators are those of `operators.py` and nothing else; a node with weights
has the name that they carry in the user's module, and `weights.py` brings them. A file of
torch.export would not do: to load one can mean to unpickle, which is to run what it says.

`from_json` believes nothing: numbers are bounded, shapes are worked out without memory, node by
node, and a graph that would need more values, weights or work than `Limits` allow is refused
with the number of the node.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from garfield.core.errors import InputError
from garfield.core.files import as_json
from garfield.split.models.cutting import Frozen, hold
from garfield.split.models.operators import MOST_NUMBER, OPERATORS, Operator, wholes

FORMAT, VERSION = "garfield-graph", 1
_NAME = re.compile(r"[A-Za-z0-9_]{1,100}(\.[A-Za-z0-9_]{1,100}){0,15}")


@dataclass(frozen=True)
class Limits:
    """What a graph may ask of a server, for one sample."""

    text_bytes: int = 2 << 20
    nodes: int = 4096
    value_elements: int = 1 << 26
    """Of any one value; VGG's largest has 3.2 million."""
    all_elements: int = 1 << 30
    """Of all values together; DenseNet-121 has 70 million."""
    weights_bytes: int = 4 << 30
    work: float = 2e11
    """Multiplications; VGG-19 has 2e10."""


@dataclass(frozen=True)
class Node:
    """One step of a graph."""

    op: str
    sources: tuple[int, ...]
    fields: Mapping[str, Any]
    name: str = ""
    """What its weights are called; empty for an operator that has none."""

    def to_json(self) -> dict[str, Any]:
        named = {"name": self.name} if self.name else {}
        return {"op": self.op, **named, "from": list(self.sources), **self.fields}


@dataclass(frozen=True)
class Graph:
    """Nodes in the order in which they run."""

    input_shape: tuple[int, ...]
    nodes: tuple[Node, ...]
    output: int

    def to_json(self) -> str:
        return as_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "input": list(self.input_shape),
                "output": self.output,
                "nodes": [node.to_json() for node in self.nodes],
            }
        )


class GraphPiece(nn.Module):
    """Runs a graph; a value is let go of when nobody takes it any more."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.input_shape = graph.input_shape
        self._modules_of: dict[int, tuple[nn.Module]] = {}  # in tuples: held by name alone
        for index, node in enumerate(graph.nodes, start=1):
            make = OPERATORS[node.op].module
            if make is not None:
                module = make(node.fields)
                hold(self, node.name, module)
                self._modules_of[index] = (module,)
        self._last_use = {
            source: index
            for index, node in enumerate(graph.nodes, start=1)
            for source in node.sources
        }
        self._in_place = _may_write(graph)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)

    def run(self, x: torch.Tensor, seen: Any = None) -> torch.Tensor:
        """What leaves the graph; `seen(index, node, value)` is told of every value."""
        values: dict[int, torch.Tensor] = {0: x}
        for index, node in enumerate(self.graph.nodes, start=1):
            taken = [values[source] for source in node.sources]
            values[index] = self._computed(index, node, taken)
            del taken
            if seen is not None:
                seen(index, node, values[index])
            for source in node.sources:
                if self._last_use[source] == index and source != self.graph.output:
                    values.pop(source, None)
        return values[self.graph.output]

    def _computed(self, index: int, node: Node, taken: Sequence[torch.Tensor]) -> torch.Tensor:
        if index in self._modules_of:
            (module,) = self._modules_of[index]
            made: torch.Tensor = module(taken[0])
            return made
        function = OPERATORS[node.op].function
        assert function is not None
        inplace = {"inplace": True} if index in self._in_place else {}
        return function(taken, {**node.fields, **inplace})


def from_json(text: str, limits: Limits | None = None) -> nn.Module:
    """The layers of a graph without memory for weights, frozen; InputError if it is refused."""
    graph = parse(text, limits)
    piece = _built(graph)
    _check_by_shapes(piece, limits or Limits())
    return Frozen(piece)


def parse(text: str, limits: Limits | None = None) -> Graph:
    """The graph that a text holds, every name and number checked; shapes are not."""
    limits = limits or Limits()
    if len(text) > limits.text_bytes:
        raise InputError(
            f"The graph has {len(text)} characters; at most {limits.text_bytes} are read."
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"The graph is not JSON: {str(problem)[:120]}.") from None
    known = {"format", "version", "input", "output", "nodes"}
    if not isinstance(found, dict) or set(found) != known:
        raise InputError(f"A graph is a JSON object of {', '.join(sorted(known))}.")
    if found["format"] != FORMAT or found["version"] != VERSION:
        raise InputError(f"This is not a {FORMAT} of version {VERSION}.")
    shape = wholes(1, lengths=(1, 4))("input", found["input"])
    nodes = found["nodes"]
    if not isinstance(nodes, list) or len(nodes) > limits.nodes:
        raise InputError(f"A graph has a list of at most {limits.nodes} nodes.")
    read = tuple(_node(index, each) for index, each in enumerate(nodes, start=1))
    _check_names(read)
    output = found["output"]
    if type(output) is not int or not 0 <= output <= len(read):
        raise InputError(f"The graph's output must be a value within 0..{len(read)}.")
    return Graph(shape, read, output)


def to_json(prefix: nn.Module, input_shape: tuple[int, ...] | None = None) -> str:
    """A prefix of a traced module as JSON; InputError if it uses what no graph may."""
    from garfield.split.models.graph_of_fx import graph_of

    inner = prefix.inner if isinstance(prefix, Frozen) else prefix
    if isinstance(inner, GraphPiece):
        return inner.graph.to_json()
    return graph_of(inner, input_shape).to_json()


def _node(index: int, found: Any) -> Node:
    if not isinstance(found, dict):
        raise InputError(f"Node {index} of the graph is not a JSON object.")
    op = found.get("op")
    if not isinstance(op, str) or op not in OPERATORS:
        raise InputError(
            f"Node {index} asks for {str(op)[:40]!r}, which is not allowed. "
            f"There are: {', '.join(OPERATORS)}."
        )
    operator = OPERATORS[op]
    own = {"op", "from"} | ({"name"} if operator.module is not None else set())
    if set(found) != own | set(operator.fields):
        wrong = sorted(map(str, set(found) ^ (own | set(operator.fields))))
        raise InputError(f"Node {index} ({op}) lacks or has too many: {', '.join(wrong)[:200]}.")
    try:
        fields = {name: check(name, found[name]) for name, check in operator.fields.items()}
    except InputError as problem:
        raise InputError(f"Node {index} ({op}): {problem}") from None
    sources = _sources(index, operator, found["from"])
    if "other" in operator.fields and (len(sources) == 1) == (fields["other"] is None):
        raise InputError(f"Node {index} ({op}) takes two values, or one and a number.")
    name = found.get("name", "")
    if operator.module is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InputError(f"Node {index} ({op}) has no proper name: {str(name)[:80]!r}.")
    return Node(op, sources, fields, name)


def _sources(index: int, operator: Operator, found: Any) -> tuple[int, ...]:
    least, most = operator.inputs
    sound = isinstance(found, list) and least <= len(found) <= most
    if not sound or not all(type(each) is int and 0 <= each < index for each in found):
        raise InputError(
            f"Node {index} ({operator.name}) must take {least} to {most} values of those before "
            f"it, 0..{index - 1}."
        )
    return tuple(found)


def _check_names(nodes: Sequence[Node]) -> None:
    """No two weights share a name, and none is the folder of another."""
    names = Counter(node.name for node in nodes if node.name)
    folders = {name[:at] for name in names for at, letter in enumerate(name) if letter == "."}
    for name, count in names.items():
        if count > 1 or name in folders:
            raise InputError(f"Two nodes of the graph are called {name}, or one lies in the other.")


def _built(graph: Graph) -> GraphPiece:
    try:
        with torch.device("meta"):
            return GraphPiece(graph)
    except (KeyError, ValueError, TypeError, RuntimeError, OverflowError) as problem:
        raise InputError(f"The graph cannot be built: {str(problem)[:200]}.") from None


def _check_by_shapes(piece: GraphPiece, limits: Limits) -> None:
    """Pass two samples that take no memory, and stop where a limit is broken."""
    weights = sum(each.numel() * each.element_size() for each in piece.state_dict().values())
    if weights > limits.weights_bytes:
        raise InputError(
            f"The graph has {weights} bytes of weights; at most {limits.weights_bytes} are taken."
        )
    if math.prod(piece.input_shape) > limits.value_elements:
        raise InputError(f"The graph's input has more than {limits.value_elements} elements.")
    samples, elements, work, at = 2, 0, 0.0, 0

    def seen(index: int, node: Node, value: torch.Tensor) -> None:
        nonlocal elements, work, at
        at = index + 1
        own = value.numel() // samples
        elements += own
        work += OPERATORS[node.op].work(value, node.fields) / samples
        for what, found, most in (
            ("elements", own, limits.value_elements),
            ("elements up to here", elements, limits.all_elements),
            ("multiplications up to here", work, limits.work),
        ):
            if found > most:
                raise InputError(
                    f"Node {index} ({node.op}) of the graph makes {found:.3g} {what} a sample; "
                    f"at most {most:.3g} are allowed."
                )
        if value.dim() < 1 or value.shape[0] != samples:
            raise InputError(f"Node {index} ({node.op}) of the graph mixes samples of a batch.")

    try:
        with torch.no_grad():
            piece.eval().run(torch.empty(samples, *piece.input_shape, device="meta"), seen)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, OverflowError) as problem:
        first = str(problem).partition("\n")[0][:200]
        raise InputError(f"Node {max(at, 1)} of the graph cannot run: {first}") from None


def _may_write(graph: Graph) -> frozenset[int]:
    """Nodes that may write into what they take: nobody else takes it, and it is no view."""
    uses = Counter(source for node in graph.nodes for source in node.sources)
    uses[graph.output] += 1
    fresh = {
        index
        for index, node in enumerate(graph.nodes, start=1)
        if OPERATORS[node.op].module is not None or node.op in ("add", "sub", "mul", "div", "cat")
    }
    return frozenset(
        index
        for index, node in enumerate(graph.nodes, start=1)
        if OPERATORS[node.op].in_place and node.sources[0] in fresh and uses[node.sources[0]] == 1
    )


__all__ = ["MOST_NUMBER", "Graph", "GraphPiece", "Limits", "Node", "from_json", "parse", "to_json"]
