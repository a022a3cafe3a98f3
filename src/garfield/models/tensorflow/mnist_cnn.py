"""MNIST_CNN in Keras: 79,510 parameters, as in `garfield.models.mnist_cnn`."""

from typing import Any

from garfield.models.tensorflow.layers import (
    Linear,
    MaxPool,
    convolution,
    flattened,
    images,
    started,
)


def mnist_cnn(classes: int = 10, channels: int = 1, seed: int | None = None) -> Any:
    return started(
        [
            *images(channels, 28, 28),
            convolution(25, 3, padding=1), MaxPool(2, 2),  # (14, 14, 25)
            convolution(25, 5, padding=0), MaxPool(2, 2),  # (5, 5, 25)
            *flattened(), Linear(100), Linear(classes, rectified=False),
        ],
        seed,
    )  # fmt: skip
