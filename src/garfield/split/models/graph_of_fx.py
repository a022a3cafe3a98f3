"""From what torch.fx wrote down to a graph of allowed operators, which a server can check.

Operators that write into their input become ones that do not: whoever reads their input later
reads the output instead, which is what it held then.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from garfield.core.errors import InputError
from garfield.split.models.fx_fields import (
    CALLS,
    MAY_WRITE,
    MODULES,
    Arguments,
    fields_of_module,
    rank,
)
from garfield.split.models.graph import Graph, Node
from garfield.split.models.operators import OPERATORS


def graph_of(piece: nn.Module, input_shape: tuple[int, ...] | None = None) -> Graph:
    """The graph of a piece that `traced` has cut; InputError if it uses what no graph may."""
    if not isinstance(piece, fx.GraphModule):
        raise InputError(
            f"{type(piece).__name__} was not traced. Cut it with garfield.split.models.traced."
        )
    shape = input_shape or getattr(piece, "input_shape", None)
    if shape is None:
        raise InputError("Say the shape of the graph's input, without the batch.")
    return _Reader(piece, tuple(shape)).read()


class _Reader:
    """Goes through the nodes of one traced piece."""

    def __init__(self, piece: fx.GraphModule, shape: tuple[int, ...]) -> None:
        self._piece, self._shape = piece, shape
        self._values: dict[fx.Node, int] = {}
        self._batches: set[fx.Node] = set()  # nodes that are the number of samples
        self._shapes: set[fx.Node] = set()  # nodes that are a tensor's shape
        self._views: dict[int, int] = {}  # of which value a value is a view
        self._nodes: list[Node] = []

    def read(self) -> Graph:
        output = 0
        for node in self._piece.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = 0
            elif node.op == "output":
                output = self._values[node.args[0]]
            else:
                self._add(node)
        return Graph(self._shape, tuple(self._nodes), output)

    def _add(self, node: fx.Node) -> None:
        if node.op == "call_module":
            module = self._piece.get_submodule(str(node.target))
            self._add_module(node, str(node.target), module)
        elif node.op in ("call_function", "call_method"):
            self._add_call(node)
        else:
            raise self._refusal(node, f"{node.op} {node.target}")

    def _add_module(self, node: fx.Node, name: str, module: nn.Module) -> None:
        if isinstance(module, (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)):
            self._values[node] = self._source(node, 0)  # in eval mode they pass on what they get
            return
        op = MODULES.get(type(module))
        if op is None:
            raise self._refusal(node, type(module).__name__)
        fields = fields_of_module(module, op)
        label = name if OPERATORS[op].module is not None else ""
        if label and any(each.name == label for each in self._nodes):
            raise InputError(f"{label} runs twice before the cut, and a graph runs it once.")
        self._put(node, op, fields, label, writes=bool(getattr(module, "inplace", False)))

    def _add_call(self, node: fx.Node) -> None:
        name = _call_name(node)
        if self._is_about_shapes(node, name):
            return
        writes = name.endswith("_") or node.target in _WRITING or bool(node.kwargs.get("inplace"))
        name = name.rstrip("_")
        if name == "dropout" or name == "contiguous":
            self._values[node] = self._source(node, 0)
        elif name in _ARITHMETIC:
            self._arithmetic(node, _ARITHMETIC[name], writes)
        elif name in ("cat", "concat"):
            self._concatenation(node)
        elif name in ("view", "reshape"):
            self._reshaping(node)
        elif name in CALLS:
            fields = CALLS[name](Arguments(node))
            writes = writes or (name in MAY_WRITE and True in node.args)
            self._put(node, "zero_pad" if name == "pad" else name, fields, writes=writes)
        else:
            raise self._refusal(node, name)

    def _put(
        self, node: fx.Node, op: str, fields: Mapping[str, Any], name: str = "", *, writes: bool
    ) -> None:
        source = self._source(node, 0)
        self._nodes.append(Node(op, (source,), dict(fields), name))
        made = self._values[node] = len(self._nodes)
        if op in ("flatten", "reshape", "permute"):
            self._views[made] = self._views.get(source, source)
        if writes:
            self._rewrite(node, source, made)

    def _rewrite(self, node: fx.Node, source: int, made: int) -> None:
        """Whoever reads what was written into reads the result from now on."""
        if source in self._views or source in self._views.values():
            raise self._refusal(node, "writing into a view")
        for other, value in self._values.items():
            if value == source:
                self._values[other] = made

    def _arithmetic(self, node: fx.Node, op: str, writes: bool) -> None:
        left, right = node.args[:2]
        if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2:
            raise self._refusal(node, f"{op} with a factor")
        if isinstance(left, fx.Node) and isinstance(right, fx.Node):
            sources: tuple[int, ...] = (self._value(node, left), self._value(node, right))
            other = None
        else:
            if not isinstance(left, fx.Node):
                if op not in ("add", "mul"):
                    raise self._refusal(node, f"a number first in {op}")
                left, right = right, left
            if not isinstance(left, fx.Node) or type(right) not in (int, float):
                raise self._refusal(node, op)
            sources, other = (self._value(node, left),), float(right)  # type: ignore[arg-type]
        self._nodes.append(Node(op, sources, {"other": other}))
        self._values[node] = len(self._nodes)
        if writes:
            self._rewrite(node, sources[0], len(self._nodes))

    def _concatenation(self, node: fx.Node) -> None:
        parts = node.args[0]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if not isinstance(parts, (list, tuple)) or not isinstance(dim, int):
            raise self._refusal(node, "cat")
        if dim < 0:
            dim += rank(node)
        sources = tuple(self._value(node, each) for each in parts)
        self._nodes.append(Node("cat", sources, {"dim": dim}))
        self._values[node] = len(self._nodes)

    def _reshaping(self, node: fx.Node) -> None:
        shape = node.args[1:]
        if len(shape) == 1 and isinstance(shape[0], (list, tuple)):
            shape = tuple(shape[0])
        first, *rest = shape
        keeps_batch = first in self._batches or (first == -1 and -1 not in rest)
        if not keeps_batch or not all(type(each) is int for each in rest):
            raise self._refusal(node, "a reshape that does not keep the batch first")
        self._put(node, "reshape", {"shape": list(rest)}, writes=False)

    def _is_about_shapes(self, node: fx.Node, name: str) -> bool:
        """Whether a node is a shape or the number of samples, which no graph needs to hold."""
        about = node.args[1] if len(node.args) > 1 else None
        first = about == 0 and (name == "size" or node.args[0] in self._shapes)
        if name == "len" or (name in ("size", "getitem") and first):
            self._batches.add(node)
        elif (name == "size" and about is None) or (name == "getattr" and about == "shape"):
            self._shapes.add(node)
        else:
            return False
        return True

    def _source(self, node: fx.Node, index: int) -> int:
        return self._value(node, node.args[index] if node.args else node.kwargs.get("input"))

    def _value(self, node: fx.Node, taken: Any) -> int:
        if not isinstance(taken, fx.Node) or taken not in self._values:
            raise self._refusal(node, "something that is not a value computed before")
        return self._values[taken]

    def _refusal(self, node: fx.Node, what: str) -> InputError:
        return InputError(
            f"A server cannot run {what} ({node.name}): a graph may hold "
            f"{', '.join(OPERATORS)}. Split before it, or add your model to SPLIT_MODELS on both "
            "sides."
        )


_ARITHMETIC = {
    "add": "add", "iadd": "add", "sub": "sub", "isub": "sub",
    "mul": "mul", "imul": "mul", "truediv": "div", "itruediv": "div", "div": "div",
}  # fmt: skip

_WRITING = {operator.iadd, operator.isub, operator.imul, operator.itruediv}


def _call_name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target)).removeprefix("boolean_")
