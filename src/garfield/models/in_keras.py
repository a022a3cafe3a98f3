"""Models of `garfield.models` once more, in Keras: the same numbers, the same gradients.

They take the same arrays as their twins, (batch, channels, height, width), and put the
channels last themselves, as TensorFlow computes. What each is made of is told at its twin.

TensorFlow's own "same" padding of a pool with stride 2 adds its row at the end only,
PyTorch's adds one on either side: here, padding is a number. Dense layers, which hold
nearly all parameters, keep their weights as PyTorch does, (out, in), and take images
with the channels first: they travel without being turned, which would take twice as long.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.frameworks import tensorflow

tf = tensorflow()
keras = tf.keras
if keras.backend.backend() != "tensorflow":
    raise ConfigError(
        f"Keras computes with {keras.backend.backend()} here. Unset KERAS_BACKEND, or choose "
        "another framework."
    )


@keras.utils.register_keras_serializable("garfield")
class MaxPool(keras.layers.Layer):  # type: ignore[misc,name-defined]  # it has no types
    """The largest of size × size pixels, every `stride`, with `padding` on either side."""

    def __init__(self, size: int, stride: int, padding: int = 0, **layer: Any) -> None:
        super().__init__(**layer)
        self.size, self.stride, self.padding = size, stride, padding

    def call(self, images: Any) -> Any:
        both = [self.padding, self.padding]
        return tf.nn.max_pool2d(images, self.size, self.stride, [[0, 0], both, both, [0, 0]])

    def get_config(self) -> dict[str, Any]:
        own = {"size": self.size, "stride": self.stride, "padding": self.padding}
        return {**super().get_config(), **own}


@keras.utils.register_keras_serializable("garfield")
class Linear(keras.layers.Layer):  # type: ignore[misc,name-defined]  # it has no types
    """x Wᵀ + b, rectified or not."""

    def __init__(self, outputs: int, rectified: bool = True, **layer: Any) -> None:
        super().__init__(**layer)
        self.outputs, self.rectified = outputs, rectified

    def build(self, shape: tuple[int, ...]) -> None:
        self.weight = self.add_weight(name="weight", shape=(self.outputs, shape[-1]))
        self.bias = self.add_weight(name="bias", shape=(self.outputs,), initializer="zeros")

    def call(self, x: Any) -> Any:
        y = tf.matmul(x, self.weight, transpose_b=True) + self.bias
        return tf.nn.relu(y) if self.rectified else y

    def compute_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], self.outputs)

    def get_config(self) -> dict[str, Any]:
        own = {"outputs": self.outputs, "rectified": self.rectified}
        return {**super().get_config(), **own}


def images(channels: int, height: int, width: int) -> list[Any]:
    """Takes images as PyTorch does, and puts their channels last."""
    return [keras.Input((channels, height, width)), keras.layers.Permute((2, 3, 1))]


def convolution(outputs: int, size: int, *, padding: int) -> Any:
    """Convolve and rectify. With stride 1, "same" is (size - 1) / 2 on either side."""
    if padding not in (0, (size - 1) // 2):
        raise ConfigError(f"A convolution of {size}×{size} is padded by 0 or {(size - 1) // 2}.")
    kind = "same" if padding else "valid"
    return keras.layers.Conv2D(outputs, size, padding=kind, activation="relu")


def flattened() -> list[Any]:
    """(channels · height · width,), as PyTorch flattens."""
    return [keras.layers.Permute((3, 1, 2)), keras.layers.Flatten()]


def started(layers: list[Any], seed: int | None) -> Any:
    """The model, its weights drawn as `garfield.models.weights` says, from numpy's generator."""
    model = keras.Sequential(layers)
    rng = np.random.default_rng(seed)
    for layer in model.layers:
        if isinstance(layer, Linear):
            weight, inputs = layer.weight, layer.weight.shape[1]
        elif hasattr(layer, "kernel"):
            weight, inputs = layer.kernel, prod(layer.kernel.shape[:-1])
        else:
            continue
        deviation = np.sqrt(2 / inputs) * (0.1 if layer is model.layers[-1] else 1)
        weight.assign((deviation * rng.standard_normal(weight.shape)).astype(np.float32))
    return model


# -- the models ---------------------------------------------------------------------------------


def digits_mlp(classes: int, channels: int, seed: int | None) -> Any:
    return started(
        [*images(channels, 8, 8), *flattened(), Linear(64), Linear(classes, rectified=False)], seed
    )


def mnist_cnn(classes: int, channels: int, seed: int | None) -> Any:
    return started(
        [
            *images(channels, 28, 28),
            convolution(25, 3, padding=1), MaxPool(2, 2),  # (14, 14, 25)
            convolution(25, 5, padding=0), MaxPool(2, 2),  # (5, 5, 25)
            *flattened(), Linear(100), Linear(classes, rectified=False),
        ],
        seed,
    )  # fmt: skip


def cifarnet(classes: int, channels: int, seed: int | None) -> Any:
    return started(
        [
            *images(channels, 32, 32),
            convolution(64, 5, padding=2), MaxPool(3, 2, padding=1),
            convolution(64, 5, padding=2), MaxPool(3, 2, padding=1),
            *flattened(),  # (4096,), from (8, 8, 64)
            Linear(384), Linear(192), Linear(classes, rectified=False),
        ],
        seed,
    )  # fmt: skip
