"""DenseNet-121, 7,978,856 parameters at 1000 classes.

Huang et al., CVPR 2017; names as in torchvision. Table 5.2 of the thesis counts 22 layers: each
dense block is one, and the four parts of a transition are four. Frozen up to layer 20, the last
norm, to which rectifier, pooling and flattening belong: a cut behind it sends 4 KB.
"""

import torch
from torch import nn

from garfield.split.models.cutting import Layer, layer

_GROWTH = 32
_NARROW = 4 * _GROWTH


class DenseLayer(nn.Module):
    """Norm, rectifier, 1×1 to 128; norm, rectifier, 3×3 to 32."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, _NARROW, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(_NARROW)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(_NARROW, _GROWTH, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(self.relu1(self.norm1(x)))
        added: torch.Tensor = self.conv2(self.relu2(self.norm2(x)))
        return added


class DenseBlock(nn.Module):
    """Layers that each see what came in and what all before them made of it."""

    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        for number in range(count):
            self.add_module(f"denselayer{number + 1}", DenseLayer(inputs + number * _GROWTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.children():
            x = torch.cat([x, each(x)], 1)
        return x


def densenet121(classes: int = 1000) -> list[Layer]:
    layers = [
        layer("features.conv0", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),
        layer("features.norm0", nn.BatchNorm2d(64)),
        layer("features.relu0", nn.ReLU(inplace=True)),
        layer("features.pool0", nn.MaxPool2d(3, stride=2, padding=1)),  # (64, 56, 56)
    ]
    width = 64
    for number, count in enumerate((6, 12, 24, 16), start=1):
        layers.append(layer(f"features.denseblock{number}", DenseBlock(width, count)))
        width += count * _GROWTH
        if number < 4:
            name = f"features.transition{number}"
            layers += [
                layer(f"{name}.norm", nn.BatchNorm2d(width)),
                layer(f"{name}.relu", nn.ReLU(inplace=True)),
                layer(f"{name}.conv", nn.Conv2d(width, width // 2, 1, bias=False)),
                layer(f"{name}.pool", nn.AvgPool2d(2)),  # halves height and width
            ]
            width //= 2
    pooling = {"relu": nn.ReLU(inplace=True), "pool": nn.AdaptiveAvgPool2d(1)}
    layers.append(
        layer("features.norm5", nn.BatchNorm2d(width), **pooling, flatten=nn.Flatten())
    )  # (1024,)
    layers.append(layer("classifier", nn.Linear(width, classes)))
    return layers
