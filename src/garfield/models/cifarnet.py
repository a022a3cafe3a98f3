"""CifarNet, for 32×32 colour images: 1,756,426 parameters, as in Table 3.1.

Two convolutions of 5×5, each followed by a pool of 3×3 that strides by 2, and three
dense layers; after the model of TensorFlow's first CIFAR-10 tutorial, without its
local response normalisation. Pooled before the ReLU, which is the same and less work
(see mnist_cnn).
"""

from torch import nn

from garfield.models.weights import started


def cifarnet(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return started(
        nn.Sequential(
            nn.Conv2d(channels, 64, 5, padding=2), nn.MaxPool2d(3, 2, padding=1), nn.ReLU(),
            nn.Conv2d(64, 64, 5, padding=2), nn.MaxPool2d(3, 2, padding=1), nn.ReLU(),
            nn.Flatten(),  # (4096,), from (64, 8, 8)
            nn.Linear(4096, 384), nn.ReLU(),
            nn.Linear(384, 192), nn.ReLU(),
            nn.Linear(192, classes),
        )
    )  # fmt: skip
