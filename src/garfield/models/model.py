"""Models by name: what is known of each without a framework, and how to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from garfield.core.errors import ConfigError, MissingDependency
from garfield.core.frameworks import require
from garfield.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS: Registry[Model] = Registry("a model")


@dataclass(frozen=True)
class Model:
    """A kind of network, before any weight exists.

    One of your own is ``MODELS.add("mine", Model("mine", my_function, image=(3, 32, 32)))``.
    """

    name: str
    build: Callable[..., nn.Module]
    """``(classes, channels)`` to a network on the default device, weights drawn afresh."""
    image: tuple[int, int, int] | None = None
    """(channels, height, width) it is made for; None: whatever it takes."""
    parameters: int | None = None
    """How many are trained, with 10 classes and as many channels as `image`; None: not stated."""
    table: int | None = None
    """What Table 3.1 of the thesis says; None for what is not in it."""
    in_keras: Callable[..., Any] | None = None
    """``(classes, channels, seed)`` to the same network in Keras; None: not written for it."""


def build(
    name: str, *, classes: int = 10, channels: int | None = None, seed: int | None = None
) -> nn.Module:
    """The network of that name; `channels` are those of the images it is made for.

    With a seed, it is made on the CPU, its weights are the same on every machine, and
    torch's own random state stays as it is; without, they come from that state.
    """
    return build_model(MODELS[name], classes=classes, channels=channels, seed=seed)


def build_model(
    model: Model, *, classes: int = 10, channels: int | None = None, seed: int | None = None
) -> nn.Module:
    """The same of a model that need not be registered."""
    channels = _checked(model, classes, channels)
    torch = _torch(model.name)
    if seed is None:
        return model.build(classes, channels)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the GPUs too
        return model.build(classes, channels)


def build_in_keras(
    name: str, *, classes: int = 10, channels: int | None = None, seed: int | None = None
) -> Any:
    """The same network for TensorFlow; with a seed, its weights are the same everywhere.

    They are not those of torch, which draws in its own way.
    """
    model = MODELS[name]
    if model.in_keras is None:
        written = [other.name for other in MODELS.values() if other.in_keras is not None]
        raise ConfigError(
            f"{name} is not written for TensorFlow. Choose one of: {', '.join(written)}."
        )
    return model.in_keras(classes, _checked(model, classes, channels), seed)


def _checked(model: Model, classes: int, channels: int | None) -> int:
    """The channels, by default those of the images it is made for."""
    if channels is None:
        channels = 1 if model.image is None else model.image[0]
    for setting, value in (("classes", classes), ("channels", channels)):
        if value < 1:
            raise ConfigError(f"{model.name}: {setting} must be at least 1, got {value}.")
    return channels


def _torch(name: str) -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise MissingDependency(
            f"{name} is a torch model, and torch is not installed. "
            "Install it with: pip install 'garfield-ml[torch]'"
        ) from None


def _add(
    name: str,
    file: str,
    *,
    image: tuple[int, int, int],
    parameters: int,
    table: int | None,
    keras: bool = False,
) -> None:
    """Register a model of ours; its file is imported when the first one is built."""

    def on_demand(classes: int = 10, channels: int = image[0]) -> nn.Module:
        _torch(name)
        made: nn.Module = getattr(import_module(f"garfield.models.{file}"), name)(classes, channels)
        return made

    def in_keras(classes: int = 10, channels: int = image[0], seed: int | None = None) -> Any:
        require(["tensorflow"])
        return getattr(import_module("garfield.models.in_keras"), name)(classes, channels, seed)

    twin = in_keras if keras else None
    MODELS.add(name, Model(name, on_demand, image, parameters, table, twin))


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)

_add("digits_mlp", "digits_mlp", image=(1, 8, 8), parameters=4_810, table=None, keras=True)
_add("mnist_cnn", "mnist_cnn", image=_GREY, parameters=79_510, table=79_510, keras=True)
_add("cifarnet", "cifarnet", image=_COLOUR, parameters=1_756_426, table=1_756_426, keras=True)
_add("inception", "inception", image=_COLOUR, parameters=5_602_874, table=5_602_874)
_add("resnet50", "resnet", image=_COLOUR, parameters=23_539_850, table=23_539_850)
_add("resnet200", "resnet", image=_COLOUR, parameters=62_697_610, table=62_697_610)
_add("vgg11", "vgg", image=_COLOUR, parameters=128_807_306, table=128_807_306)
_add("vgg19", "vgg", image=_COLOUR, parameters=139_611_210, table=128_807_306)
