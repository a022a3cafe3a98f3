"""Models, data, losses, metrics and optimizers by the names that settings have for them.

A name is a registered one, a reference to something of the user's (`mine.py:Net`,
`torch.optim:Adam`), for data also a source (`data.npz`, `folder:DIR`), or `memory:NAME` for what
a Python process holds itself and no other can find. Every process finds them by itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from garfield.adapters.contract import SGD
from garfield.adapters.metrics import ACCURACY, METRICS, Metric
from garfield.apps.groups import Learning, Samples
from garfield.core.blame import blamed_on
from garfield.core.errors import ConfigError, UnknownName
from garfield.data import DATASETS, sources
from garfield.data.arrays import array_data
from garfield.data.catalogue import load_any
from garfield.data.contract import LearningData
from garfield.models import MODELS, Model
from garfield.runs import user_files

MEMORY = "memory:"
PARTS = ("model", "data", "loss", "metric", "optimizer")
"""The settings whose values may be of the user's own."""
LOSSES = {
    "cross-entropy": "torch.nn:CrossEntropyLoss",
    "mse": "garfield.adapters.torch_losses:mse",
    "mae": "garfield.adapters.torch_losses:mae",
}
SGD_NAME = "sgd"
OPTIMIZERS = {SGD_NAME: "torch.optim:SGD", "adam": "torch.optim:Adam", "adamw": "torch.optim:AdamW"}

_held: dict[str, Any] = {}


@contextmanager
def held(parts: Mapping[str, Any]) -> Iterator[None]:
    """Have these found by their names, `memory:NAME`, in this process and as long as this lasts."""
    _held.update(parts)
    try:
        yield
    finally:
        for name in parts:
            _held.pop(name, None)


def anchored(values: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Settings whose paths to files of the user's start from `base`, with these made absolute."""
    return {
        name: _anchored(name, value, base) if name in PARTS and isinstance(value, str) else value
        for name, value in values.items()
    }


def _anchored(part: str, text: str, base: Path) -> str:
    if part == "data" and sources.is_source(text):
        return sources.anchored(text, base)
    return user_files.anchored(text, base) if user_files.is_reference(text) else text


def is_own(name: str, registered: Mapping[str, Any]) -> bool:
    """Whether a name stands for something of the user's that is not registered."""
    return name not in registered and (name.startswith(MEMORY) or user_files.is_reference(name))


def own(part: str, name: str) -> Any:
    """What of the user's that name stands for."""
    if not name.startswith(MEMORY):
        return user_files.found(name)
    if name not in _held:
        raise ConfigError(
            f"The {part} {name.removeprefix(MEMORY)} lay in the memory of the Python process that "
            "began the run, which no other can read. Go on from Python: "
            f"garfield.train(resume=DIR, {part}=...)."
        )
    return _held[name]


# -- models ---------------------------------------------------------------------------------------


def model_named(name: str) -> Model:
    """A model that is registered, or one of the user's."""
    if not is_own(name, MODELS):
        return MODELS[name]
    given = own("model", name)
    if isinstance(given, Model):
        return given
    if not callable(given):
        raise ConfigError(
            f"The model {name} is a {type(given).__name__}. It must be a class of torch.nn.Module, "
            "or a function that makes one."
        )
    return Model(name, lambda classes, channels: _module(name, given, classes))


def _module(name: str, given: Any, classes: int) -> Any:
    """A module of the user's: a class or function is called, a module is copied as it is."""
    from torch import nn

    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    known = {"classes": classes, "num_classes": classes}
    asked, lacking = {}, []
    for parameter in _parameters(given):
        if parameter.name in known:
            asked[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty:
            lacking.append(parameter.name)
    if lacking:
        raise ConfigError(
            f"The model {name} needs {', '.join(lacking)} to be made, and nobody says what. Give a "
            f"function that makes it: def net(): return {name.rpartition(':')[2]}(...)."
        )
    with blamed_on(f"The model {name}"):
        made = given(**asked)
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"The model {name} made a {type(made).__name__}. It must make a torch.nn.Module."
        )
    return made


def _parameters(given: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a function or class must or can be called with by name."""
    try:
        found = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # of C code
        return []
    return [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


# -- data -----------------------------------------------------------------------------------------


def data_named(samples: Samples, seed: int) -> LearningData:
    """Data that are registered, or of the user's; `seed` draws what is held out, if anything."""
    name = samples.data
    if name in DATASETS:
        return load_any(name, samples.data_dir)
    if sources.is_source(name):
        return sources.read_source(name, seed=seed, side=samples.image_side)
    if not is_own(name, DATASETS):
        raise UnknownName("a data set", name, DATASETS)
    return learning_data(own("data", name), seed, name)


def learning_data(given: Any, seed: int, name: str) -> LearningData:
    """What a user calls data: arrays, what says where they lie, or a function that gives either."""
    if callable(given) and not hasattr(given, "targets"):
        with blamed_on(f"The data {name}"):
            given = given()
    if hasattr(given, "targets") and hasattr(given, "prepare"):
        found: LearningData = given
        return found
    return array_data(given, seed=seed, where=name)


def check_data_name(name: str) -> None:
    """Refuse a name that stands for no data, without reading any."""
    if is_own(name, DATASETS):
        own("data", name)
    elif not sources.is_source(name) and name not in DATASETS:
        raise UnknownName("a data set", name, DATASETS)


# -- loss, metric, optimizer ----------------------------------------------------------------------


def loss_named(learning: Learning, data: LearningData) -> Any:
    """What outputs and targets are compared by: None for the framework's own cross-entropy."""
    name = learning.loss or ("mse" if data.class_count is None else None)
    if name is None:
        return None
    from garfield.adapters.torch_losses import as_loss

    return as_loss(name, _part("a loss", "loss", name, LOSSES))


def metric_named(learning: Learning, data: LearningData) -> Metric:
    """What a model is judged by: accuracy for classes, else the loss if it is one of ours."""
    name, larger = learning.metric, learning.larger_is_better
    if name is None:
        by_loss = learning.loss if learning.loss in METRICS else None
        name = by_loss or ("mse" if data.class_count is None else ACCURACY.name)
    if name in METRICS:
        metric = METRICS[name]
    else:
        given = _part("a metric", "metric", name, METRICS)
        whole = given() if isinstance(given, type) else given
        if not callable(whole):
            raise ConfigError(f"The metric {name} is a {type(whole).__name__}, and no function.")
        metric = Metric(name.rpartition(":")[2], whole=whole)
    return metric if larger is None else replace(metric, larger_is_better=larger)


def new_optimizer(name: str) -> Callable[[Any, SGD], Any]:
    """What makes the servers' optimizer of parameters, by that name."""
    given = _part("an optimizer", "optimizer", name, OPTIMIZERS)

    def made(parameters: Any, sgd: SGD) -> Any:
        wanted = {"momentum": sgd.momentum, "weight_decay": sgd.weight_decay}
        known = {"lr": sgd.learning_rate, "learning_rate": sgd.learning_rate}
        known |= {each: value for each, value in wanted.items() if value}
        asked = {p.name: known[p.name] for p in _parameters(given) if p.name in known}
        with blamed_on(f"The optimizer {name}"):
            optimizer = given(parameters, **asked)
        if not all(hasattr(optimizer, each) for each in ("step", "state_dict", "param_groups")):
            raise ConfigError(
                f"The optimizer {name} made a {type(optimizer).__name__}. It must make a "
                "torch.optim.Optimizer of the parameters that it is given."
            )
        return optimizer

    return made


def check_learning_names(learning: Learning) -> None:
    """Refuse names of losses, metrics and optimizers that stand for nothing."""
    for kind, part, registered in (
        ("a loss", "loss", LOSSES), ("a metric", "metric", METRICS),
        ("an optimizer", "optimizer", OPTIMIZERS),
    ):  # fmt: skip
        name = getattr(learning, part)
        if name is not None and name not in registered:
            _part(kind, part, name, registered)


def is_plain(learning: Learning) -> bool:
    """Whether a classifier of ours is trained as ever: nothing is of the user's own."""
    return learning.model in MODELS and learning.optimizer == SGD_NAME and (
        learning.loss in (None, "cross-entropy") and learning.metric in (None, ACCURACY.name)
    )  # fmt: skip


def _part(kind: str, part: str, name: str, registered: Mapping[str, Any]) -> Any:
    if name in registered:
        return user_files.found(registered[name])
    if not is_own(name, registered):
        raise UnknownName(kind, name, registered)
    return own(part, name)
