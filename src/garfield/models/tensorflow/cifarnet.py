"""CifarNet in Keras: 1,756,426 parameters, as in `garfield.models.cifarnet`."""

from typing import Any

from garfield.models.tensorflow.layers import (
    Linear,
    MaxPool,
    convolution,
    flattened,
    images,
    started,
)


def cifarnet(classes: int = 10, channels: int = 3, seed: int | None = None) -> Any:
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
