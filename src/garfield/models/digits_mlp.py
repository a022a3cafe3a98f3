"""A perceptron for the 8×8 digits: 64 → 64 → 10, 4,810 parameters.

Not in Table 3.1: for tests that need many nodes and no accuracy worth telling.
"""

from torch import nn

from garfield.models.weights import started


def digits_mlp(classes: int = 10, channels: int = 1) -> nn.Sequential:
    return started(
        nn.Sequential(
            nn.Flatten(), nn.Linear(channels * 8 * 8, 64), nn.ReLU(), nn.Linear(64, classes)
        )
    )
