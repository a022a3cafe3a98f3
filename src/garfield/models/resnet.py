"""ResNet-50 and ResNet-200 with pre-activation: 23,539,850 and 62,697,610 parameters.

Norm and ReLU come before each convolution, so that what is added up is never
rectified. He et al., ECCV 2016. These are the counts of Table 3.1, to the last one;
the ResNet-50 of 2015 has 23,528,522, and 23,520,842 with a 3×3 stem for small images.
Convolutions that no norm follows have a bias: the stem, each shortcut, each unit's last.

The stem strides by 1 instead of 2, which costs no parameter: a 32×32 image then
reaches the four stages as 16×16, 8×8, 4×4 and 2×2.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from garfield.models.weights import started

_EXPANSION = 4  # a unit puts out four times its inner width


class Bottleneck(nn.Module):
    """1×1 to `width`, 3×3, 1×1 to four times `width`, added to what came in."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = _EXPANSION * width
        self.norm1 = nn.BatchNorm2d(inputs)
        self.narrow = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.middle = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(width)
        self.widen = nn.Conv2d(width, outputs, 1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = functional.relu(self.norm1(x))
        passed: torch.Tensor = x if self.shortcut is None else self.shortcut(active)
        inner = self.middle(functional.relu(self.norm2(self.narrow(active))))
        added: torch.Tensor = self.widen(functional.relu(self.norm3(inner)))
        return passed + added


def _resnet(units: Sequence[int], classes: int, channels: int) -> nn.Sequential:
    inputs, blocks = 64, []
    for stage, count in enumerate(units):
        width = 64 * 2**stage
        for unit in range(count):
            blocks.append(Bottleneck(inputs, width, stride=2 if stage and not unit else 1))
            inputs = _EXPANSION * width
    return started(
        nn.Sequential(
            nn.Conv2d(channels, 64, 7, padding=3), nn.MaxPool2d(3, 2, padding=1),  # (64, 16, 16)
            *blocks,  # (2048, 2, 2)
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(inputs, classes),
        )
    )  # fmt: skip


def resnet50(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return _resnet((3, 4, 6, 3), classes, channels)


def resnet200(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return _resnet((3, 24, 36, 3), classes, channels)
