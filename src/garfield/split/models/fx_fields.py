"""The numbers that a graph's node takes, from a call that torch.fx wrote down or from a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx, nn

from garfield.core.errors import InputError
from garfield.split.models.operators import OPERATORS

Fields = dict[str, Any]


class Arguments:
    """What a call was given, by place or by name; numbers that stand for pairs become pairs."""

    def __init__(self, node: fx.Node) -> None:
        self._node = node
        self.rank = rank(node.args[0])
        """How many dimensions the first tensor has."""

    def get(self, place: int, name: str, default: Any = None) -> Any:
        if place < len(self._node.args):
            return self._node.args[place]
        return self._node.kwargs.get(name, default)

    def dim(self, place: int, name: str, default: int) -> int:
        """A dimension counted from the front."""
        found = int(self.get(place, name, default))
        return found + self.rank if found < 0 else found


def rank(node: Any) -> int:
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    shape = getattr(meta, "shape", None)
    return 4 if shape is None else len(shape)


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _pool(arguments: Arguments) -> Fields:
    kernel = _pair(arguments.get(1, "kernel_size"))
    return {
        "kernel_size": kernel,
        "stride": _pair(arguments.get(2, "stride") or kernel),
        "padding": _pair(arguments.get(3, "padding", 0)),
    }


def _max_pool(arguments: Arguments) -> Fields:
    dilation, ceil = arguments.get(4, "dilation", 1), arguments.get(5, "ceil_mode", False)
    return {**_pool(arguments), "dilation": _pair(dilation), "ceil_mode": ceil}


def _avg_pool(arguments: Arguments) -> Fields:
    ceil, include = (
        arguments.get(4, "ceil_mode", False),
        arguments.get(5, "count_include_pad", True),
    )
    return {**_pool(arguments), "ceil_mode": ceil, "count_include_pad": include}


def _mean(arguments: Arguments) -> Fields:
    found = arguments.get(1, "dim")
    if found is None:
        raise InputError("A mean over all dimensions mixes the samples of a batch.")
    dims = [found] if isinstance(found, int) else list(found)
    keepdim = bool(arguments.get(2, "keepdim", False))
    return {
        "dim": [each + arguments.rank if each < 0 else each for each in dims],
        "keepdim": keepdim,
    }


def _padding(arguments: Arguments) -> Fields:
    if arguments.get(2, "mode", "constant") != "constant" or arguments.get(3, "value", 0):
        raise InputError("A graph pads with zeros alone.")
    return {"padding": list(arguments.get(1, "pad"))}


CALLS: dict[str, Callable[[Arguments], Fields]] = {
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

MAY_WRITE = ("relu", "relu6", "silu", "hardswish", "leaky_relu", "elu")


def _flatten_from(arguments: Arguments) -> int:
    if arguments.get(2, "end_dim", -1) != -1:
        raise InputError("A graph flattens up to the last dimension.")
    return arguments.dim(1, "start_dim", 0)


MODULES: dict[type[nn.Module], str] = {
    nn.Conv2d: "conv2d",
    nn.BatchNorm2d: "batch_norm2d",
    nn.Linear: "linear",
    nn.LayerNorm: "layer_norm",
    nn.GroupNorm: "group_norm",
    nn.MaxPool2d: "max_pool2d",
    nn.AvgPool2d: "avg_pool2d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
    nn.GELU: "gelu",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.Flatten: "flatten",
    nn.ZeroPad2d: "zero_pad",
}
"""The operator that a module is."""

_LISTS = ("kernel_size", "stride", "padding", "dilation", "output_size", "normalized_shape")


def fields_of_module(module: Any, op: str) -> Fields:
    """What an operator takes, which modules of torch have under the same names."""
    _check_module(module)
    fields: Fields = {}
    for name in OPERATORS[op].fields:
        value = getattr(module, name)
        if name == "bias":
            value = value is not None
        elif name in _LISTS:
            value = _pair(value or module.kernel_size if name == "stride" else value)
        fields[name] = value
    return fields


def _check_module(module: Any) -> None:
    """Refuse what the operators have no field for."""
    for kind, wrong, why in _REFUSED:
        if isinstance(module, kind) and wrong(module):
            raise InputError(why)


_REFUSED: tuple[tuple[type[nn.Module], Callable[[Any], bool], str], ...] = (
    (
        nn.Conv2d,
        lambda module: module.padding_mode != "zeros" or isinstance(module.padding, str),
        "A graph's convolutions pad with zeros, by numbers.",
    ),
    (
        nn.BatchNorm2d,
        lambda module: not module.track_running_stats,
        "A batch norm without running statistics mixes the samples of a batch.",
    ),
    (
        nn.MaxPool2d,
        lambda module: module.return_indices,
        "A graph's pooling gives values, and no indices.",
    ),
    (
        nn.AvgPool2d,
        lambda module: module.divisor_override is not None,
        "A graph's mean pooling divides by the number of what it pools.",
    ),
    (
        nn.Flatten,
        lambda module: module.end_dim != -1 or module.start_dim < 1,
        "A graph flattens from a dimension behind the batch to the last.",
    ),
)
