"""What LSGAN and DCGAN have in common: first weights, layout, labels, and Adam."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


def started(network: Network) -> Network:
    """The same network with weights from N(0, 0.02), as DCGAN's authors advise.

    Radford et al., ICLR 2016, section 4. Scales of batch or group norm come from N(1, 0.02).
    """
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.normal_(layer.weight, 1.0, 0.02)
        if getattr(layer, "bias", None) is not None and not isinstance(layer, nn.Embedding):
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return network


def normed(maps: int, *, group_norm: bool) -> nn.Module:
    """Batch norm; or group norm, which keeps the images of a batch apart, of 8 groups if it can.

    Wu and He, ECCV 2018. A discriminator with group norm can be trained privately.
    """
    return nn.GroupNorm(math.gcd(maps, 8), maps) if group_norm else nn.BatchNorm2d(maps)


def channels_last(images: Tensor) -> Tensor:
    """The same images as convolutions on a CPU prefer them; on other devices as they are."""
    return images.contiguous(memory_format=torch.channels_last) if images.is_cpu else images


class LabelledNoise(nn.Module):
    """Noise with a learned vector per class appended: (b, latent), (b,) -> (b, latent + size).

    Mirza and Osindero, 2014.
    """

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.classes = nn.Embedding(classes, size)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        return torch.cat([z, self.classes(labels)], dim=1)


class Score(nn.Module):
    """A score of features, (b, features) -> (b,); with classes, how well they fit the label too.

    Conditional scores are ⟨w + v_label, features⟩ + c: a projection discriminator (Miyato and
    Koyama, ICLR 2018).
    """

    def __init__(self, features: int, classes: int | None) -> None:
        super().__init__()
        self.all_classes = nn.Linear(features, 1)
        self.by_class = None if classes is None else nn.Embedding(classes, features)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        score: Tensor = self.all_classes(features).squeeze(1)
        if self.by_class is None:
            return score
        fit: Tensor = (self.by_class(labels) * features).sum(dim=1)
        return score + fit


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam as the thesis sets it (6.4): learning rate 0.0002, betas 0.5 and 0.999."""
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999))
