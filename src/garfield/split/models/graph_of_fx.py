"""From what torch.fx wrote down to a graph of allowed operators, which a server can check.

Operators that write into their input become ones that do not: whoever reads their input later
reads the output instead, which is what it held then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from torch import fx, nn

from garfield.core.errors import InputError
from garfield.split.models.graph import Graph, Node
from garfield.split.models.operators import OPERATORS

_Fields = dict[str, Any]


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
        described = _described(module)
        if described is None:
            raise self._refusal(node, type(module).__name__)
        op, fields = described
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
        elif name in _CALLS:
            fields = _CALLS[name](_Arguments(node))
            writes = writes or (name in _MAY_WRITE and True in node.args)
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
            dim += _rank(node)
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


class _Arguments:
    """What a call was given, by place or by name; numbers that stand for pairs become pairs."""

    def __init__(self, node: fx.Node) -> None:
        self._node = node
        self.rank = _rank(node.args[0])
        """How many dimensions the first tensor has."""

    def get(self, place: int, name: str, default: Any = None) -> Any:
        if place < len(self._node.args):
            return self._node.args[place]
        return self._node.kwargs.get(name, default)

    def dim(self, place: int, name: str, default: int) -> int:
        """A dimension counted from the front."""
        found = int(self.get(place, name, default))
        return found + self.rank if found < 0 else found


def _rank(node: Any) -> int:
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    shape = getattr(meta, "shape", None)
    return 4 if shape is None else len(shape)


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _pool(arguments: _Arguments) -> _Fields:
    kernel = _pair(arguments.get(1, "kernel_size"))
    return {
        "kernel_size": kernel,
        "stride": _pair(arguments.get(2, "stride") or kernel),
        "padding": _pair(arguments.get(3, "padding", 0)),
    }


def _max_pool(arguments: _Arguments) -> _Fields:
    dilation, ceil = arguments.get(4, "dilation", 1), arguments.get(5, "ceil_mode", False)
    return {**_pool(arguments), "dilation": _pair(dilation), "ceil_mode": ceil}


def _avg_pool(arguments: _Arguments) -> _Fields:
    ceil, include = (
        arguments.get(4, "ceil_mode", False),
        arguments.get(5, "count_include_pad", True),
    )
    return {**_pool(arguments), "ceil_mode": ceil, "count_include_pad": include}


def _mean(arguments: _Arguments) -> _Fields:
    found = arguments.get(1, "dim")
    if found is None:
        raise InputError("A mean over all dimensions mixes the samples of a batch.")
    dims = [found] if isinstance(found, int) else list(found)
    keepdim = bool(arguments.get(2, "keepdim", False))
    return {
        "dim": [each + arguments.rank if each < 0 else each for each in dims],
        "keepdim": keepdim,
    }


def _padding(arguments: _Arguments) -> _Fields:
    if arguments.get(2, "mode", "constant") != "constant" or arguments.get(3, "value", 0):
        raise InputError("A graph pads with zeros alone.")
    return {"padding": list(arguments.get(1, "pad"))}


_CALLS: dict[str, Callable[[_Arguments], _Fields]] = {
    "relu": lambda _: {},
    "relu6": lambda _: {},
    "silu": lambda _: {},
    "hardswish": lambda _: {},
    "hardsigmoid": lambda _: {},
    "sigmoid": lambda _: {},
    "tanh": lambda _: {},
    "gelu": lambda arguments: {"approximate": arguments.get(1, "approximate", "none")},
    "leaky_relu": lambda arguments: {
        "negative_slope": float(arguments.get(1, "negative_slope", 0.01))
    },
    "elu": lambda arguments: {"alpha": float(arguments.get(1, "alpha", 1.0))},
    "softmax": lambda arguments: {"dim": arguments.dim(1, "dim", -1)},
    "flatten": lambda arguments: {"start_dim": _flatten_from(arguments)},
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "adaptive_avg_pool2d": lambda arguments: {
        "output_size": _pair(arguments.get(1, "output_size"))
    },
    "mean": _mean,
    "pad": _padding,
}

_MAY_WRITE = ("relu", "relu6", "silu", "hardswish", "leaky_relu", "elu")


def _flatten_from(arguments: _Arguments) -> int:
    if arguments.get(2, "end_dim", -1) != -1:
        raise InputError("A graph flattens up to the last dimension.")
    return arguments.dim(1, "start_dim", 0)


_ARITHMETIC = {
    "add": "add", "iadd": "add", "sub": "sub", "isub": "sub",
    "mul": "mul", "imul": "mul", "truediv": "div", "itruediv": "div", "div": "div",
}  # fmt: skip

_WRITING = {operator.iadd, operator.isub, operator.imul, operator.itruediv}


def _call_name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target)).removeprefix("boolean_")


def _described(module: nn.Module) -> tuple[str, _Fields] | None:
    """The operator that a module is, and its fields; None if it is none."""
    describe = _MODULES.get(type(module))
    return None if describe is None else describe(module)


def _conv2d(module: Any) -> tuple[str, _Fields]:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise InputError("A graph's convolutions pad with zeros, by numbers.")
    return "conv2d", {
        "in_channels": module.in_channels,
        "out_channels": module.out_channels,
        "kernel_size": list(module.kernel_size),
        "stride": list(module.stride),
        "padding": list(module.padding),
        "dilation": list(module.dilation),
        "groups": module.groups,
        "bias": module.bias is not None,
    }


def _batch_norm2d(module: Any) -> tuple[str, _Fields]:
    if not module.track_running_stats:
        raise InputError("A batch norm without running statistics mixes the samples of a batch.")
    fields = {"num_features": module.num_features, "eps": module.eps, "affine": module.affine}
    return "batch_norm2d", fields


def _max_pool2d_module(module: Any) -> tuple[str, _Fields]:
    if module.return_indices:
        raise InputError("A graph's pooling gives values, and no indices.")
    kernel = _pair(module.kernel_size)
    return "max_pool2d", {
        "kernel_size": kernel,
        "stride": _pair(module.stride or kernel),
        "padding": _pair(module.padding),
        "dilation": _pair(module.dilation),
        "ceil_mode": module.ceil_mode,
    }


def _avg_pool2d_module(module: Any) -> tuple[str, _Fields]:
    if module.divisor_override is not None:
        raise InputError("A graph's mean pooling divides by the number of what it pools.")
    return "avg_pool2d", {
        "kernel_size": _pair(module.kernel_size),
        "stride": _pair(module.stride or module.kernel_size),
        "padding": _pair(module.padding),
        "ceil_mode": module.ceil_mode,
        "count_include_pad": module.count_include_pad,
    }


def _flatten_module(module: Any) -> tuple[str, _Fields]:
    if module.end_dim != -1 or module.start_dim < 1:
        raise InputError("A graph flattens from a dimension behind the batch to the last.")
    return "flatten", {"start_dim": module.start_dim}


def _layer_norm(module: Any) -> tuple[str, _Fields]:
    return "layer_norm", {
        "normalized_shape": list(module.normalized_shape),
        "eps": module.eps,
        "elementwise_affine": module.elementwise_affine,
    }


def _group_norm(module: Any) -> tuple[str, _Fields]:
    return "group_norm", {
        "num_groups": module.num_groups,
        "num_channels": module.num_channels,
        "eps": module.eps,
        "affine": module.affine,
    }


_MODULES: dict[type[nn.Module], Callable[[Any], tuple[str, _Fields]]] = {
    nn.Conv2d: _conv2d,
    nn.BatchNorm2d: _batch_norm2d,
    nn.Linear: lambda module: (
        "linear",
        {
            "in_features": module.in_features,
            "out_features": module.out_features,
            "bias": module.bias is not None,
        },
    ),
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.MaxPool2d: _max_pool2d_module,
    nn.AvgPool2d: _avg_pool2d_module,
    nn.AdaptiveAvgPool2d: lambda module: (
        "adaptive_avg_pool2d",
        {"output_size": _pair(module.output_size)},
    ),
    nn.ReLU: lambda _: ("relu", {}),
    nn.ReLU6: lambda _: ("relu6", {}),
    nn.SiLU: lambda _: ("silu", {}),
    nn.Hardswish: lambda _: ("hardswish", {}),
    nn.Hardsigmoid: lambda _: ("hardsigmoid", {}),
    nn.Sigmoid: lambda _: ("sigmoid", {}),
    nn.Tanh: lambda _: ("tanh", {}),
    nn.GELU: lambda module: ("gelu", {"approximate": module.approximate}),
    nn.LeakyReLU: lambda module: ("leaky_relu", {"negative_slope": module.negative_slope}),
    nn.ELU: lambda module: ("elu", {"alpha": module.alpha}),
    nn.Flatten: _flatten_module,
    nn.ZeroPad2d: lambda module: ("zero_pad", {"padding": list(module.padding)}),
}
