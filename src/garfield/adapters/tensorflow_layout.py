"""The place of each TensorFlow variable in a flat vector, and the order of its axes there.

The canonical layout is PyTorch's, so that both frameworks can train one model.
Kernels are kept differently, and one copy takes them across, either way:

| layer                | TensorFlow                | canonical                        |
|----------------------|---------------------------|----------------------------------|
| convolution          | (height, width, in, out)  | (out, in, height, width)         |
| transposed one       | (height, width, out, in)  | (in, out, height, width)         |
| depthwise one        | (height, width, in, m)    | (in · m, 1, height, width)       |
| dense                | (in, out)                 | (out, in)                        |
| dense after a Flatten | (height · width · channels, out) | (out, channels · height · width) |

Everything else is laid out alike. Of a plain tf.Module only the ranks are known: its
matrices are taken for dense kernels, its arrays of rank 3 to 5 for convolutions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.kernels import aligned
from garfield.kernels.turning import copy_turned

Shape = tuple[int, ...]

_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")
_TRANSPOSED = tuple(f"{name}Transpose" for name in _CONVOLUTIONS)
_DEPTHWISE = ("DepthwiseConv1D", "DepthwiseConv2D")
_ELEMENTWISE = ("Activation", "Dropout", "ReLU", "LeakyReLU", "ELU", "PReLU", "Identity")


@dataclass(frozen=True)
class AxisOrder:
    """How one variable is stored, and in which order of axes it travels."""

    shape: Shape
    """The variable's own."""
    apart: Shape
    """The same, but an axis that a Flatten made is taken apart again."""
    order: Shape
    """Axes of `apart`, in the order in which they travel."""
    canonical: Shape
    """The shape that PyTorch would give it."""


@dataclass(frozen=True)
class Part:
    """A variable's place in the vector."""

    name: str
    start: int
    layout: AxisOrder

    @property
    def size(self) -> int:
        return prod(self.layout.shape)

    def pack(self, values: Any, vector: FlatVector) -> None:
        """Copy the variable's values, as TensorFlow stores them, to their place."""
        stored = np.asarray(values).reshape(self.layout.apart)
        copy_turned(stored, self.layout.order, self._place(vector))

    def unpack(self, vector: FlatVector, values: FlatVector) -> None:
        """The reverse: from their place into flat memory, as TensorFlow stores them."""
        order = self.layout.order
        back = tuple(order.index(axis) for axis in range(len(order)))
        copy_turned(self._place(vector), back, values.reshape(self.layout.apart))

    def _place(self, vector: FlatVector) -> FlatVector:
        """Its part of the vector, shaped by the axes in the order in which they travel."""
        travelling = tuple(self.layout.apart[axis] for axis in self.layout.order)
        return vector[self.start : self.start + self.size].reshape(travelling)


def parts(named: Iterable[tuple[str, AxisOrder]], start: int = 0) -> list[Part]:
    """One after the other, from `start` on."""
    found = []
    for name, layout in named:
        found.append(Part(name, start, layout))
        start += found[-1].size
    return found


def fresh_memory(laid: Iterable[Part]) -> list[FlatVector]:
    """Fresh memory for each part, aligned as TensorFlow wants it, out of one piece."""
    sizes = [part.size for part in laid]
    line = aligned.LINE // 4
    places = np.cumsum([0, *(-(-size // line) * line for size in sizes)]).tolist()
    flat = aligned.empty(places[-1])
    return [flat[at : at + size] for at, size in zip(places, sizes, strict=False)]


def by_rank(shape: Shape) -> AxisOrder:
    """The order for a variable of which nothing but the shape is known."""
    if len(shape) == 2:
        return _reversed_ends(shape)
    return _convolution(shape) if 3 <= len(shape) <= 5 else as_it_is(shape)


def as_it_is(shape: Shape) -> AxisOrder:
    return AxisOrder(shape, shape, tuple(range(len(shape))), shape)


def keras_layouts(model: Any) -> dict[int, AxisOrder]:
    """The orders of all variables that travel in another one than they are stored in, by id."""
    found = {}
    for layer in model._flatten_layers():
        kind = _kind(layer)
        kernel = getattr(layer, "kernel", None)
        if kernel is None or kind is None:
            continue
        found[id(kernel)] = _of_kernel(kind, tuple(kernel.shape), layer)
    return found


def _kind(layer: Any) -> str | None:
    """What its kernel is for; subclasses of Keras' own layers count as those."""
    known = (*_CONVOLUTIONS, *_TRANSPOSED, *_DEPTHWISE, "Dense")
    names = [cls.__name__ for cls in type(layer).__mro__ if cls.__module__.startswith("keras.")]
    return next((name for name in names if name in known), None)


def _of_kernel(kind: str, shape: Shape, layer: Any) -> AxisOrder:
    if kind == "Dense":
        image = _flattened(layer)
        if image is None or prod(image) != shape[0]:
            return _reversed_ends(shape)
        apart = (*image, shape[1])
        return AxisOrder(shape, apart, _convolution(apart).order, (shape[1], shape[0]))
    if kind in _DEPTHWISE:
        *space, inputs, times = shape
        axes = (len(space), len(space) + 1, *range(len(space)))
        return AxisOrder(shape, shape, axes, (inputs * times, 1, *space))
    return _convolution(shape)


def _convolution(shape: Shape) -> AxisOrder:
    """(space…, i, o) travels as (o, i, space…)."""
    last = len(shape) - 1
    order = (last, last - 1, *range(last - 1))
    return AxisOrder(shape, shape, order, tuple(shape[axis] for axis in order))


def _reversed_ends(shape: Shape) -> AxisOrder:
    return AxisOrder(shape, shape, (1, 0), (shape[1], shape[0]))


def _flattened(dense: Any) -> Shape | None:
    """The (space…, channels) that a Flatten before this layer made one axis of."""
    try:
        tensor = dense.input
        while True:
            layer = tensor._keras_history.operation
            if type(layer).__name__ == "Flatten":
                shape = tuple(layer.input.shape[1:])
                if getattr(layer, "data_format", None) == "channels_first":
                    shape = (*shape[1:], shape[0])  # Keras puts them last before it flattens
                return shape if len(shape) > 1 else None
            if type(layer).__name__ not in _ELEMENTWISE:
                return None
            tensor = layer.input
    except (AttributeError, ValueError):
        return None  # not part of a graph of layers: a subclassed model
