"""The perceptron for 8×8 digits in Keras: 4,810 parameters, as in `garfield.models.digits_mlp`."""

from typing import Any

from garfield.models.tensorflow.layers import Linear, flattened, images, started


def digits_mlp(classes: int = 10, channels: int = 1, seed: int | None = None) -> Any:
    return started(
        [*images(channels, 8, 8), *flattened(), Linear(64), Linear(classes, rectified=False)], seed
    )
