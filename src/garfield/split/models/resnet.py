"""ResNet-18 and ResNet-50: 11,689,512 and 25,557,032 parameters at 1000 classes.

He et al., CVPR 2016; the stride of a bottleneck is at its 3×3 convolution, as in torchvision,
whose names these are. A block is one layer, as in Table 5.2 of the thesis: 14 layers frozen up
to 11, the last block, and 22 frozen up to 20, the pooling. Flattening belongs to the pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from garfield.split.models.cutting import Layer, layer


class Residual(nn.Module):
    """What came in, added to what the block makes of it; rectified."""

    expansion: int

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.inner(x)
        made += x if self.downsample is None else self.downsample(x)
        rectified: torch.Tensor = self.relu(made)
        return rectified


class BasicBlock(Residual):
    """Two 3×3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        made: torch.Tensor = self.bn2(self.conv2(x))
        return made


class Bottleneck(Residual):
    """1×1 to `width`, 3×3, 1×1 to four times `width`."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width * self.expansion, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        made: torch.Tensor = self.bn3(self.conv3(x))
        return made


def _resnet(
    block: type[BasicBlock] | type[Bottleneck], counts: Sequence[int], classes: int
) -> list[Layer]:
    layers = [
        layer("conv1", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),  # (64, 112, 112)
        layer("bn1", nn.BatchNorm2d(64)),
        layer("relu", nn.ReLU(inplace=True)),
        layer("maxpool", nn.MaxPool2d(3, stride=2, padding=1)),  # (64, 56, 56)
    ]
    inputs = 64
    for stage, count in enumerate(counts):
        width = 64 * 2**stage  # (width * expansion, 56 / 2**stage, 56 / 2**stage)
        for number in range(count):
            stride = 2 if stage and not number else 1
            layers.append(layer(f"layer{stage + 1}.{number}", block(inputs, width, stride)))
            inputs = width * block.expansion
    layers.append(layer("avgpool", nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten()))
    layers.append(layer("fc", nn.Linear(inputs, classes)))
    return layers


def resnet18(classes: int = 1000) -> list[Layer]:
    return _resnet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> list[Layer]:
    return _resnet(Bottleneck, (3, 4, 6, 3), classes)
