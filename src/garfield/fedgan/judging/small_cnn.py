"""A small network that tells classes of small images apart, and whose last features judge them.

Three convolutions of 3×3 with 16, 32 and 64 channels, each rectified and halved, then 128
features, then the classes: 98,442 parameters for ten classes of 28×28 grey images. One is trained
and shipped for each data set (`shipped.py`); `trained_on.py` trains another on generated images.

`fit` is the one way in which any of them is trained: Adam, a learning rate that rises to its
peak and falls again (Smith and Topin, 2019), batches drawn by a seed. Nothing here touches torch's
own random state: one may be trained in a thread beside others who draw from it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

FEATURES = 128
"""How many features there are before the last layer."""

_CHANNELS = (16, 32, 64)
_PEAK = 4e-3
_WEIGHT_DECAY = 1e-4


class SmallCnn(nn.Module):
    """A classifier of images (n, c, h, w) in [-1, 1], at least 8×8."""

    def __init__(self, classes: int = 10, image: tuple[int, int, int] = (1, 28, 28)) -> None:
        super().__init__()
        channels, height, width = image
        steps: list[nn.Module] = []
        for outputs in _CHANNELS:
            steps += [nn.Conv2d(channels, outputs, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
            channels = outputs
        self.body = nn.Sequential(*steps, nn.Flatten())
        self.last = nn.Linear(channels * (height // 8) * (width // 8), FEATURES)
        self.head = nn.Linear(FEATURES, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 128), none below zero"""
        if images.is_cpu:
            images = images.to(memory_format=torch.channels_last)
        return functional.relu(self.last(self.body(images)))

    @torch.no_grad()
    def largest_feature(self) -> float:
        """What no feature of an image in [-1, 1] exceeds, by intervals from layer to layer."""
        largest: torch.Tensor | None = None  # (channels,); of the image itself, 1 in size
        for layer in self.body:
            if not isinstance(layer, nn.Conv2d):
                continue  # halving and rectifying make nothing larger
            weight, bias = layer.weight, layer.bias
            assert bias is not None  # these convolutions have one
            if largest is None:
                reached = weight.abs().sum((1, 2, 3))
            else:
                reached = weight.clamp_min(0).sum((2, 3)) @ largest
            largest = functional.relu(reached + bias)
        assert largest is not None
        places = self.last.in_features // len(largest)
        inputs = largest.repeat_interleave(places)
        return float((self.last.weight.clamp_min(0) @ inputs + self.last.bias).max())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.features(images))
        return scores  # (n, classes)


def fresh(classes: int, image: tuple[int, int, int], seed: int) -> SmallCnn:
    """One whose weights are drawn from the seed alone: N(0, 2 / inputs), He et al., ICCV 2015."""
    model = without_weights(classes, image).to_empty(device="cpu")
    rng = torch.Generator().manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=rng)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def without_weights(classes: int, image: tuple[int, int, int]) -> SmallCnn:
    """One that has no memory yet, and for which nothing was drawn."""
    with torch.device("meta"):
        return SmallCnn(classes, image)


def fit(
    model: SmallCnn,
    pixels: torch.Tensor,
    labels: torch.Tensor,
    *,
    epochs: int,
    seed: int,
    batch: int = 100,
) -> None:
    """Train on images as bytes (n, c, h, w) and their classes (n,); the model ends in eval mode."""
    steps = epochs * -(-len(pixels) // batch)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(epochs):
        for picked in torch.split(torch.randperm(len(pixels), generator=order), batch):
            loss = functional.cross_entropy(model(in_range(pixels[picked])), labels[picked])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    model.eval()


def in_range(pixels: torch.Tensor) -> torch.Tensor:
    """Bytes as networks take them: float32 in [-1, 1]."""
    return pixels.float().div_(127.5).sub_(1)


@torch.no_grad()
def accuracy(
    model: SmallCnn, pixels: torch.Tensor, labels: torch.Tensor, *, batch: int = 1000
) -> float:
    """The share of images whose class it names."""
    right = 0
    for some, truth in zip(torch.split(pixels, batch), torch.split(labels, batch), strict=True):
        right += int((model(in_range(some)).argmax(1) == truth).sum())
    return right / len(pixels)
