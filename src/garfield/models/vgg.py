"""VGG-11 and VGG-19, on 32×32 images: 128,807,306 and 139,611,210 parameters.

Five stacks of 3×3 convolutions with pools between, then three dense layers of
25088 → 4096 → 4096 → 10. Simonyan and Zisserman, ICLR 2015.

Table 3.1 gives its VGG19 128,807,306 parameters, which is VGG-11 with ten classes to
the last one; VGG-19 has 10,803,904 more. Both are here: take vgg11 to move vectors of
the table's size, vgg19 for the depth that its name promises.

The dense layers want 7×7 pixels, and five pools would leave one of a 32×32 image. So
the third pool strides by 1 and the last two are left out, which costs no parameter:
32, 16, 8, and from there 7.
"""

from collections.abc import Sequence

from torch import nn

from garfield.models.weights import started

_WIDTHS = (64, 128, 256, 512, 512)
_STRIDES = (2, 2, 1, None, None)  # of the pool after each stack


def _vgg(convolutions: Sequence[int], classes: int, channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for count, width, stride in zip(convolutions, _WIDTHS, _STRIDES, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        if stride is not None:
            layers.append(nn.MaxPool2d(2, stride))
    return started(
        nn.Sequential(
            *layers, nn.Flatten(),  # (25088,), from (512, 7, 7)
            nn.Linear(25088, 4096), nn.ReLU(),
            nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, classes),
        )
    )  # fmt: skip


def vgg11(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return _vgg((1, 1, 2, 2, 2), classes, channels)


def vgg19(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return _vgg((2, 2, 4, 4, 4), classes, channels)
