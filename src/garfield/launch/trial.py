"""Try a model of the user's on some of the data before anything starts, and say what does not fit.

One batch goes through the model, its loss, back, and through the metric, as it will at every
node. What is wrong is told with shapes and numbers, and with the user's file and line.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from garfield.adapters.contract import Batch
from garfield.apps.groups import NONE
from garfield.apps.own_parts import is_plain
from garfield.apps.settings import Settings
from garfield.core.blame import told
from garfield.core.errors import ConfigError, GarfieldError, InputError
from garfield.data import DATASETS
from garfield.data.contract import LearningData
from garfield.launch.assemble import dataset, new_adapter
from garfield.nodes.plan import parse_plan

_TESTED = 8  # samples that the metric is tried on


def check_fit(settings: Settings) -> None:
    """Raise ConfigError or InputError for a model, loss or metric that does not take the data.

    Models and data of ours are known to fit, or not, by their names.
    """
    learning, samples = settings.learning, settings.samples
    if samples.data in DATASETS and is_plain(learning):
        return
    data = dataset(samples, settings.seed)
    _check_attack(settings, data)
    if settings.frameworks[0] != "torch":
        return
    import torch

    adapter: Any = new_adapter(settings, "torch", optimizer=True)
    with torch.random.fork_rng(devices=[]):
        _try_training(settings, data, adapter)
        _try_testing(settings, data, adapter)


def _check_attack(settings: Settings, data: LearningData) -> None:
    attack = settings.faults.worker_attack
    plan = None if attack == NONE else parse_plan(attack)
    if plan is None or plan.attack is None or plan.attack.kind != "data":
        return
    if data.class_count is None:
        raise ConfigError(
            f"{plan.attack.name} turns the labels of classes, and the targets of "
            f"{settings.samples.data} are other numbers. Choose an attack on vectors, such as "
            "reverse or little-is-enough."
        )


def _try_training(settings: Settings, data: LearningData, adapter: Any) -> None:
    name, count = settings.learning.model, settings.learning.batch
    picked = np.arange(min(count, len(data.targets("train"))))
    batch = _tensors(data.prepare(data.inputs("train")[picked]), data.targets("train")[picked])
    inputs, targets = batch
    adapter.module.train()
    try:
        outputs = adapter.module(inputs)
    except GarfieldError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The model {name} does not take the data: inputs are {_shown(inputs)}. {told(error)}"
        ) from error
    if not hasattr(outputs, "backward"):
        raise ConfigError(
            f"The model {name} gave a {type(outputs).__name__} for inputs of {_shown(inputs)}. It "
            "must give one tensor."
        )
    _check_labels(settings, data, outputs, adapter.loss)
    _try_loss(settings, adapter, outputs, targets)


def _check_labels(settings: Settings, data: LearningData, outputs: Any, loss: Any) -> None:
    """Cross-entropy wants an output for every class; torch says which label only where it fails."""
    from torch import nn

    if not isinstance(loss, nn.CrossEntropyLoss) or data.class_count is None:
        return
    if outputs.ndim < 2:
        raise ConfigError(
            f"The model {settings.learning.model} gave outputs of {_shown(outputs)}, and "
            "cross-entropy needs one for every class: (samples, classes)."
        )
    classes = outputs.shape[1]
    for split in ("train", "test"):
        labels = data.targets(split)
        counted = labels[labels != loss.ignore_index]
        wrong = counted[(counted < 0) | (counted >= classes)]
        if len(wrong):
            raise InputError(
                f"{len(wrong)} of {labels.size} labels to {split} on are not within "
                f"0..{classes - 1}: they run from {counted.min()} to {counted.max()}, and "
                f"{settings.learning.model} has {classes} outputs. Count classes from 0, or give "
                "the model an output for each."
            )


def _try_loss(settings: Settings, adapter: Any, outputs: Any, targets: Any) -> None:
    what = f"The loss {settings.learning.loss or type(adapter.loss).__name__}"
    about = f"outputs of {_shown(outputs)} and targets of {_shown(targets)}"
    try:
        with warnings.catch_warnings():
            # torch would go on, with every output compared to every target
            warnings.filterwarnings("error", message="Using a target size")
            loss = adapter.loss(outputs, targets)
    except GarfieldError as error:
        raise ConfigError(f"{what} does not take {about}: {error}") from error
    except Exception as error:
        raise ConfigError(f"{what} does not take {about}. {told(error)}") from error
    if not hasattr(loss, "backward") or loss.numel() != 1:
        shape = f" of shape {tuple(loss.shape)}" if hasattr(loss, "shape") else ""
        raise ConfigError(
            f"{what} gave a {type(loss).__name__}{shape} for {about}. It must give one number as a "
            "tensor: end it with .mean(), say."
        )
    if not loss.requires_grad:
        raise ConfigError(f"{what} does not depend on the model: its result has no gradient.")
    if not bool(loss.isfinite()):
        raise ConfigError(
            f"{what} of the first batch is {float(loss.detach())}. Scale the inputs, or begin with "
            "smaller weights."
        )
    try:
        loss.backward()
    except Exception as error:
        raise ConfigError(f"{what} has no gradient for {about}. {told(error)}") from error


def _try_testing(settings: Settings, data: LearningData, adapter: Any) -> None:
    picked = np.arange(min(_TESTED, len(data.targets("test"))))
    batch = (data.prepare(data.inputs("test")[picked]), data.targets("test")[picked])
    try:
        adapter.evaluate([batch])
    except GarfieldError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The metric {adapter.metric.name} does not take what {settings.learning.model} gives "
            f"for targets of {batch[1].dtype} {batch[1].shape}. {told(error)}"
        ) from error


def _tensors(inputs: Any, targets: Any) -> Batch:
    import torch

    return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(np.array(targets))


def _shown(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
