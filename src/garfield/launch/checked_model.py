"""A model of the user's held to the contract on their data, as `garfield train` would use both."""

from __future__ import annotations

from typing import Any

from garfield.apps.groups import Learning, Samples
from garfield.apps.own_parts import data_named, loss_named, metric_named, model_named, own
from garfield.core.errors import InputError
from garfield.models import MODELS
from garfield.testing.files import Examined, check_own_model
from garfield.testing.models import SAMPLES, Tried

_LEAST = 4  # samples that the contract needs


def check_model_on(learning: Learning, samples: Samples, seed: int = 1) -> Examined:
    """Try a model on the first samples of the data, with their loss and metric."""
    name = learning.model
    model, data = model_named(name), data_named(samples, seed)
    inputs = data.prepare(data.inputs("train")[:SAMPLES])
    targets = data.targets("train")[:SAMPLES]
    if len(inputs) < _LEAST:
        raise InputError(
            f"{samples.data} has {len(inputs)} samples to train on. A model is tried on {SAMPLES}, "
            f"and on no fewer than {_LEAST}."
        )
    tried = Tried(
        model, (inputs, targets),
        classes=() if data.class_count is None else (data.class_count,),
        channels=data.shape[0] if len(data.shape) == 3 else None,
        loss=loss_named(learning, data), metric=metric_named(learning, data),
    )  # fmt: skip
    code: Any = model.build if name in MODELS else own("model", name)
    return check_own_model(name.rpartition(":")[2], code, tried)
