"""The operators that a graph may use: what each is called, takes, and costs.

A graph comes from a tenant, so this list is all that it can ask of a server. None reads or writes
anything but tensors, each treats the samples of a batch apart (no dimension named in a graph is
the first), and every number that one takes is checked against bounds before torch sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from garfield.core.errors import InputError

Check = Callable[[str, Any], Any]

MOST_NUMBER = 1 << 20
"""No size, stride or dimension in a graph is larger."""


@dataclass(frozen=True)
class Operator:
    """What a node of a graph does."""

    name: str
    fields: Mapping[str, Check] = field(default_factory=dict)
    """What it takes, all of it to be given, and what each must be."""
    inputs: tuple[int, int] = (1, 1)
    """How many values it takes, at least and at most."""
    module: Callable[[Mapping[str, Any]], nn.Module] | None = None
    """Makes the module of an operator that has weights."""
    function: Callable[[Sequence[torch.Tensor], Mapping[str, Any]], torch.Tensor] | None = None
    """Runs an operator without; given the values that it takes, and its fields."""
    work: Callable[[torch.Tensor, Mapping[str, Any]], float] = lambda out, _: out.numel()
    """Multiplications of one pass, from what it puts out."""
    in_place: bool = False
    """It may write into its only input: its field `inplace` is set by who reads the graph."""


def whole(least: int, most: int = MOST_NUMBER) -> Check:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise InputError(f"{name} must be a whole number within {least}..{most}.")
        return value

    return check


def wholes(least: int, *, lengths: tuple[int, int] = (2, 2)) -> Check:
    one = whole(least)

    def check(name: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not lengths[0] <= len(value) <= lengths[1]:
            raise InputError(f"{name} must be a list of {lengths[0]} to {lengths[1]} numbers.")
        return tuple(one(name, each) for each in value)

    return check


def number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e30:
        raise InputError(f"{name} must be a finite number.")
    return float(value)


def truth(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise InputError(f"{name} must be true or false.")
    return value


def one_of(*words: str) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in words or not isinstance(value, str):
            raise InputError(f"{name} must be one of {', '.join(words)}.")
        return value

    return check


_SIZE, _COUNT = wholes(1), whole(1)
_WINDOW = {"kernel_size": _SIZE, "stride": _SIZE, "padding": wholes(0)}
_DIM = whole(1, 7)  # never the first, which is the batch
_TAIL = wholes(-1, lengths=(1, 7))


def _conv(out: torch.Tensor, given: Mapping[str, Any]) -> float:
    each = math.prod(given["kernel_size"]) * given["in_channels"] / given["groups"]
    return float(out.numel() * each)


def _pooled(out: torch.Tensor, given: Mapping[str, Any]) -> float:
    return float(out.numel() * math.prod(given["kernel_size"]))


def _binary(name: str, function: Callable[[torch.Tensor, Any], torch.Tensor]) -> Operator:
    """Of two values, or of one and the number `other`."""

    def of(values: Sequence[torch.Tensor], given: Mapping[str, Any]) -> torch.Tensor:
        return function(values[0], values[1] if len(values) > 1 else given["other"])

    return Operator(name, {"other": _optional_number}, inputs=(1, 2), function=of)


def _optional_number(name: str, value: Any) -> float | None:
    return None if value is None else number(name, value)


def _of_module(kind: Callable[..., nn.Module]) -> Callable[[Mapping[str, Any]], nn.Module]:
    return lambda given: kind(**given)


def _of_function(
    function: Callable[..., torch.Tensor],
) -> Callable[[Sequence[torch.Tensor], Mapping[str, Any]], torch.Tensor]:
    return lambda values, given: function(values[0], **given)


def _activation(name: str, function: Callable[..., torch.Tensor], **fields: Check) -> Operator:
    return Operator(name, fields, function=_of_function(function))


def _in_place(name: str, function: Callable[..., torch.Tensor], **fields: Check) -> Operator:
    return Operator(name, fields, function=_of_function(function), in_place=True)


def _softmax(values: Sequence[torch.Tensor], given: Mapping[str, Any]) -> torch.Tensor:
    if given["dim"] >= values[0].dim():  # without memory, torch does not look
        raise IndexError(f"there is no dimension {given['dim']} of {values[0].dim()}")
    return functional.softmax(values[0], given["dim"])


_ALL = (
    Operator(
        "conv2d",
        {
            "in_channels": _COUNT,
            "out_channels": _COUNT,
            **_WINDOW,
            "dilation": _SIZE,
            "groups": _COUNT,
            "bias": truth,
        },
        module=_of_module(nn.Conv2d),
        work=_conv,
    ),
    Operator(
        "batch_norm2d",
        {"num_features": _COUNT, "eps": number, "affine": truth},
        module=_of_module(nn.BatchNorm2d),
    ),
    Operator(
        "linear",
        {"in_features": _COUNT, "out_features": _COUNT, "bias": truth},
        module=_of_module(nn.Linear),
        work=lambda out, given: float(out.numel() * given["in_features"]),
    ),
    Operator(
        "layer_norm",
        {
            "normalized_shape": wholes(1, lengths=(1, 7)),
            "eps": number,
            "elementwise_affine": truth,
        },
        module=_of_module(nn.LayerNorm),
    ),
    Operator(
        "group_norm",
        {"num_groups": _COUNT, "num_channels": _COUNT, "eps": number, "affine": truth},
        module=_of_module(nn.GroupNorm),
    ),
    Operator(
        "max_pool2d",
        {**_WINDOW, "dilation": _SIZE, "ceil_mode": truth},
        function=_of_function(functional.max_pool2d),
        work=_pooled,
    ),
    Operator(
        "avg_pool2d",
        {**_WINDOW, "ceil_mode": truth, "count_include_pad": truth},
        function=_of_function(functional.avg_pool2d),
        work=_pooled,
    ),
    Operator(
        "adaptive_avg_pool2d",
        {"output_size": _SIZE},
        function=_of_function(functional.adaptive_avg_pool2d),
        work=lambda out, _: float(out.numel()) * 64,
    ),
    _in_place("relu", functional.relu),
    _in_place("relu6", functional.relu6),
    _in_place("silu", functional.silu),
    _in_place("hardswish", functional.hardswish),
    _in_place("leaky_relu", functional.leaky_relu, negative_slope=number),
    _in_place("elu", functional.elu, alpha=number),
    _activation("hardsigmoid", functional.hardsigmoid),
    _activation("sigmoid", torch.sigmoid),
    _activation("tanh", torch.tanh),
    _activation("gelu", functional.gelu, approximate=one_of("none", "tanh")),
    Operator("softmax", {"dim": _DIM}, function=_softmax),
    Operator(
        "flatten",
        {"start_dim": _DIM},
        function=lambda values, given: torch.flatten(values[0], given["start_dim"]),
    ),
    Operator(
        "reshape",
        {"shape": _TAIL},
        function=lambda values, given: values[0].reshape(len(values[0]), *given["shape"]),
    ),
    Operator(
        "permute",
        {"dims": wholes(1, lengths=(1, 7))},
        function=lambda values, given: values[0].permute(0, *given["dims"]),
    ),
    Operator(
        "mean",
        {"dim": wholes(1, lengths=(1, 7)), "keepdim": truth},
        function=lambda values, given: values[0].mean(given["dim"], keepdim=given["keepdim"]),
    ),
    Operator(
        "zero_pad",
        {"padding": wholes(0, lengths=(2, 4))},
        function=lambda values, given: functional.pad(values[0], given["padding"]),
    ),
    Operator(
        "cat",
        {"dim": _DIM},
        inputs=(1, 256),
        function=lambda values, given: torch.cat(list(values), given["dim"]),
    ),
    _binary("add", torch.add),
    _binary("sub", torch.sub),
    _binary("mul", torch.mul),
    _binary("div", torch.div),
)

OPERATORS: Mapping[str, Operator] = {each.name: each for each in _ALL}
