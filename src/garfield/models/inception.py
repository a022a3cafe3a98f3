"""GoogLeNet with batch norm, on 32×32 images: 5,602,874 parameters, as in Table 3.1.

Nine blocks of four branches each, whose outputs are stacked: 1×1; 1×1 then 3×3; 1×1
then 3×3 again; a pool then 1×1. Szegedy et al., CVPR 2015, with three changes that
together make the table's count: batch norm after every convolution, which shifts but
does not scale; 3×3 instead of the third branch's 5×5; no auxiliary classifiers.

The first convolution strides by 1 instead of 2, which costs no parameter: a 32×32
image then reaches the blocks as 8×8, and the last two as 2×2.
"""

from typing import NamedTuple

import torch
from torch import nn

from garfield.models.weights import started


class Widths(NamedTuple):
    """Channels of a block: where the middle branches narrow, and what all four put out."""

    one: int
    narrow: int
    three: int
    narrower: int
    other_three: int
    pooled: int


_FIRST = (Widths(64, 96, 128, 16, 32, 32), Widths(128, 128, 192, 32, 96, 64))
_MIDDLE = (
    Widths(192, 96, 208, 16, 48, 64),
    Widths(160, 112, 224, 24, 64, 64),
    Widths(128, 128, 256, 24, 64, 64),
    Widths(112, 144, 288, 32, 64, 64),
    Widths(256, 160, 320, 32, 128, 128),
)
_LAST = (Widths(256, 160, 320, 32, 128, 128), Widths(384, 192, 384, 48, 128, 128))


def convolution(inputs: int, outputs: int, size: int = 1) -> nn.Sequential:
    """Convolve, centre, rectify; height and width stay as they are."""
    norm = nn.BatchNorm2d(outputs)
    norm.register_parameter("weight", None)  # the next layer can scale as well
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False), norm, nn.ReLU()
    )


class Block(nn.Module):
    """Four branches over the same image, side by side."""

    def __init__(self, inputs: int, widths: Widths) -> None:
        super().__init__()
        w = widths
        self.branches = nn.ModuleList(
            [
                convolution(inputs, w.one),
                nn.Sequential(convolution(inputs, w.narrow), convolution(w.narrow, w.three, 3)),
                nn.Sequential(
                    convolution(inputs, w.narrower), convolution(w.narrower, w.other_three, 3)
                ),
                nn.Sequential(nn.MaxPool2d(3, 1, padding=1), convolution(inputs, w.pooled)),
            ]
        )
        self.outputs = w.one + w.three + w.other_three + w.pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _blocks(inputs: int, rows: tuple[Widths, ...]) -> list[Block]:
    blocks: list[Block] = []
    for widths in rows:
        blocks.append(Block(inputs, widths))
        inputs = blocks[-1].outputs
    return blocks


def _halved() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, 2, padding=1)


def inception(classes: int = 10, channels: int = 3) -> nn.Sequential:
    return started(
        nn.Sequential(
            convolution(channels, 64, 7), _halved(),  # (64, 16, 16)
            convolution(64, 64), convolution(64, 192, 3), _halved(),  # (192, 8, 8)
            *_blocks(192, _FIRST), _halved(),  # (480, 4, 4)
            *_blocks(480, _MIDDLE), _halved(),  # (832, 2, 2)
            *_blocks(832, _LAST), nn.AdaptiveAvgPool2d(1),  # (1024, 1, 1)
            nn.Flatten(), nn.Linear(1024, classes),
        )
    )  # fmt: skip
