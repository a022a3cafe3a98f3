"""Inception-v3 up to its 2,048 features, for those who own weights of it.

Szegedy et al., CVPR 2016; 23,834,568 parameters at 1000 classes without the auxiliary classifier.
Names are torchvision's, which two files in use share:

- `pt_inception-2015-12-05-*.pth`, TensorFlow's graph of 2015 as Heusel et al. use it for FID, has
  1008 classes. There a mean over a border leaves the border out, and the last block takes the
  largest of its neighbours instead of their mean. With it: "FID (Inception-v3)".
- torchvision's `inception_v3_google-*.pth` has 1000 classes and neither oddity. Its distances are
  near the others' but not the same, and are labelled "FID (Inception-v3, torchvision)".

Both take 299×299 images in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from garfield.core.errors import InputError
from garfield.models.weight_files import read_state_dict

SIDE = 299
FEATURES = 2048
_OF_2015, _OF_TORCHVISION = 1008, 1000

Size = int | tuple[int, int]


class Convolution(nn.Module):
    """Convolve without bias, normalise, rectify."""

    def __init__(self, inputs: int, outputs: int, kernel: Size = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=0, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.bn(self.conv(x)), inplace=True)


def _same(inputs: int, outputs: int, kernel: Size = 1) -> Convolution:
    """A convolution that keeps height and width."""
    made = Convolution(inputs, outputs, kernel)
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    made.conv.padding = (height // 2, width // 2)
    return made


class Block(nn.Module):
    """Branches side by side, each a row of steps by name; what they give is stacked.

    A step that is a tuple of names is a fork: both read the same, and are stacked.
    """

    def __init__(
        self,
        steps: dict[str, Convolution],
        rows: list[list[str | tuple[str, str]]],
        pool: nn.Module,
    ) -> None:
        super().__init__()
        for name, step in steps.items():
            self.add_module(name, step)
        self._rows = rows
        self._pool = (pool,)  # in a tuple: not a part with a name in the weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self._through(row, x) for row in self._rows]
        pooled = self._pool[0](x)
        last = ["branch_pool"] if hasattr(self, "branch_pool") else []
        return torch.cat([*made, self._through(last, pooled)], 1)

    def _through(self, row: Sequence[str | tuple[str, str]], x: torch.Tensor) -> torch.Tensor:
        for step in row:
            if isinstance(step, tuple):
                x = torch.cat([getattr(self, name)(x) for name in step], 1)
            else:
                x = getattr(self, step)(x)
        return x


def _block_a(inputs: int, pooled: int, pool: nn.Module) -> Block:
    steps = {
        "branch1x1": _same(inputs, 64),
        "branch5x5_1": _same(inputs, 48), "branch5x5_2": _same(48, 64, 5),
        "branch3x3dbl_1": _same(inputs, 64), "branch3x3dbl_2": _same(64, 96, 3),
        "branch3x3dbl_3": _same(96, 96, 3),
        "branch_pool": _same(inputs, pooled),
    }  # fmt: skip
    rows: list[list[str | tuple[str, str]]] = [
        ["branch1x1"],
        ["branch5x5_1", "branch5x5_2"],
        ["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"],
    ]
    return Block(steps, rows, pool)


def _block_b(inputs: int) -> Block:
    """Halves height and width."""
    steps = {
        "branch3x3": Convolution(inputs, 384, 3, 2),
        "branch3x3dbl_1": _same(inputs, 64), "branch3x3dbl_2": _same(64, 96, 3),
        "branch3x3dbl_3": Convolution(96, 96, 3, 2),
    }  # fmt: skip
    return Block(
        steps,
        [["branch3x3"], ["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"]],
        nn.MaxPool2d(3, 2),
    )


def _block_c(inner: int, pool: nn.Module) -> Block:
    wide, high = (1, 7), (7, 1)
    steps = {
        "branch1x1": _same(768, 192),
        "branch7x7_1": _same(768, inner), "branch7x7_2": _same(inner, inner, wide),
        "branch7x7_3": _same(inner, 192, high),
        "branch7x7dbl_1": _same(768, inner), "branch7x7dbl_2": _same(inner, inner, high),
        "branch7x7dbl_3": _same(inner, inner, wide), "branch7x7dbl_4": _same(inner, inner, high),
        "branch7x7dbl_5": _same(inner, 192, wide),
        "branch_pool": _same(768, 192),
    }  # fmt: skip
    rows: list[list[str | tuple[str, str]]] = [
        ["branch1x1"],
        [f"branch7x7_{number}" for number in range(1, 4)],
        [f"branch7x7dbl_{number}" for number in range(1, 6)],
    ]
    return Block(steps, rows, pool)


def _block_d() -> Block:
    """Halves height and width."""
    steps = {
        "branch3x3_1": _same(768, 192), "branch3x3_2": Convolution(192, 320, 3, 2),
        "branch7x7x3_1": _same(768, 192), "branch7x7x3_2": _same(192, 192, (1, 7)),
        "branch7x7x3_3": _same(192, 192, (7, 1)), "branch7x7x3_4": Convolution(192, 192, 3, 2),
    }  # fmt: skip
    rows: list[list[str | tuple[str, str]]] = [
        ["branch3x3_1", "branch3x3_2"],
        [f"branch7x7x3_{number}" for number in range(1, 5)],
    ]
    return Block(steps, rows, nn.MaxPool2d(3, 2))


def _block_e(inputs: int, pool: nn.Module) -> Block:
    wide, high = (1, 3), (3, 1)
    steps = {
        "branch1x1": _same(inputs, 320),
        "branch3x3_1": _same(inputs, 384), "branch3x3_2a": _same(384, 384, wide),
        "branch3x3_2b": _same(384, 384, high),
        "branch3x3dbl_1": _same(inputs, 448), "branch3x3dbl_2": _same(448, 384, 3),
        "branch3x3dbl_3a": _same(384, 384, wide), "branch3x3dbl_3b": _same(384, 384, high),
        "branch_pool": _same(inputs, 192),
    }  # fmt: skip
    rows: list[list[str | tuple[str, str]]] = [
        ["branch1x1"],
        ["branch3x3_1", ("branch3x3_2a", "branch3x3_2b")],
        ["branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b")],
    ]
    return Block(steps, rows, pool)


class InceptionV3(nn.Module):
    """Images (n, 3, 299, 299) in [-1, 1] to features (n, 2048); `fc` is there for its weights."""

    def __init__(self, classes: int = _OF_2015) -> None:
        super().__init__()
        of_2015 = classes == _OF_2015
        mean = nn.AvgPool2d(3, 1, padding=1, count_include_pad=not of_2015)
        last = nn.MaxPool2d(3, 1, padding=1) if of_2015 else mean
        self._steps: list[nn.Module] = []
        for name, module in (
            ("Conv2d_1a_3x3", Convolution(3, 32, 3, 2)),  # (32, 149, 149)
            ("Conv2d_2a_3x3", Convolution(32, 32, 3)),
            ("Conv2d_2b_3x3", _same(32, 64, 3)),
            ("", nn.MaxPool2d(3, 2)),  # (64, 73, 73)
            ("Conv2d_3b_1x1", _same(64, 80)),
            ("Conv2d_4a_3x3", Convolution(80, 192, 3)),
            ("", nn.MaxPool2d(3, 2)),  # (192, 35, 35)
            ("Mixed_5b", _block_a(192, 32, mean)),
            ("Mixed_5c", _block_a(256, 64, mean)),
            ("Mixed_5d", _block_a(288, 64, mean)),
            ("Mixed_6a", _block_b(288)),  # (768, 17, 17)
            *((f"Mixed_6{letter}", _block_c(inner, mean))
              for letter, inner in zip("bcde", (128, 160, 160, 192), strict=True)),
            ("Mixed_7a", _block_d()),  # (1280, 8, 8)
            ("Mixed_7b", _block_e(1280, mean)),
            ("Mixed_7c", _block_e(2048, last)),
        ):  # fmt: skip
            if name:
                self.add_module(name, module)
            self._steps.append(module)
        self.fc = nn.Linear(FEATURES, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self._steps:
            x = step(x)
        return x.mean((2, 3))


def load_inception(path: Path) -> tuple[InceptionV3, str]:
    """The network with a file's weights, frozen, and what its distances are called."""
    found = {
        key: value
        for key, value in read_state_dict(path).items()
        if not key.startswith("AuxLogits")
    }
    classes = len(found["fc.weight"]) if "fc.weight" in found else 0
    if classes not in (_OF_2015, _OF_TORCHVISION):
        raise InputError(
            f"{path} holds no Inception-v3 of {_OF_2015} classes (TensorFlow's of 2015, as used "
            f"for FID) or {_OF_TORCHVISION} (torchvision's), but one of {classes}."
        )
    with torch.device("meta"):  # 95 MB that the file is about to bring
        model = InceptionV3(classes)
    wanted = model.state_dict()
    for key, own in wanted.items():
        if key.endswith("num_batches_tracked"):
            found.setdefault(key, torch.zeros((), dtype=torch.int64))
        elif key not in found or found[key].shape != own.shape:
            had = tuple(found[key].shape) if key in found else "nothing"
            raise InputError(
                f"{path}: Inception-v3 wants {key} as {tuple(own.shape)}, the file has {had}."
            )
    model.load_state_dict({key: found[key] for key in wanted}, assign=True)
    label = "Inception-v3" if classes == _OF_2015 else "Inception-v3, torchvision"
    return model.float().eval().requires_grad_(False), label
