"""What a worker runs to learn what tasks need: made-up batches, timed layers, a first warm-up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from garfield.split.server.extraction import Clock, made_prefix, refused_as, run_prefix
from garfield.split.server.messages import WorkerSide
from garfield.split.wire import Model, Refusal, row_frames


def rehearse(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Run the first layers on made-up batches of given sizes, with a mark after each.

    The first mark comes when the weights are loaded.
    """
    model = Model(**{name: task[name] for name in ("model", "graph", "weights")})
    shape, clock = tuple(task["input_shape"]), Clock()
    with clock.timing("weights"):
        prefix = made_prefix(model, int(task["split"]), task["weights_file"])
    side.mark()
    out: tuple[int, ...] = ()
    for batch in task["batches"]:
        with clock.timing(f"forward {batch}"), refused_as(Refusal.BAD_MODEL):
            features = run_prefix(prefix, torch.zeros(batch, *shape), "float32")
        out = features.shape[1:]
        for _ in row_frames(features):
            pass
        del features
        side.mark()
    return {"seconds": clock.seconds, "out_shape": list(out)}


def time_layers(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Seconds per sample of each layer of a registered model, one layer in memory at a time.

    Weights are zeros: how long a layer takes does not depend on them.
    """
    from garfield.split.models import SPLIT_MODELS
    from garfield.split.models.cutting import LayeredModel

    with refused_as(Refusal.BAD_MODEL):
        known = SPLIT_MODELS[task["model"]]
        with torch.device("meta"):
            model = LayeredModel(
                known.name, known.layers(1), freeze=known.freeze, input_shape=known.image
            )
        batch, split = (
            int(task["batch"]),
            model.checked_split(int(task["split"]), len(model.layers) - 2),
        )
        x = torch.zeros(batch, *task["input_shape"])
        seconds = []
        for index in range(split):
            piece = model.piece(index, index + 1).eval().to_empty(device="cpu")
            for tensor in piece.state_dict().values():
                tensor.zero_()
            times = []
            for _ in range(2):  # the first also allocates
                start = time.perf_counter()
                with torch.inference_mode():
                    leaving = piece(x)
                times.append(time.perf_counter() - start)
            piece.to("meta")
            x = leaving
            seconds.append(min(times) / batch)
            if side.called_off():
                break
    return {"names": model.layers[:split], "layer_seconds": seconds, "batch": batch}


def warm_up() -> None:
    """Run once, small, what every extraction runs: what that allocates for good is no task's."""
    from garfield.split.models import empty_prefix
    from garfield.split.objects import open_object, pack
    from garfield.split.transforms import Transforms

    black = np.zeros((40, 40, 3), np.uint8)
    packed = open_object("warm-up", pack([black, black], [0, 1], "jpeg"))
    transforms = Transforms.parse("resize(36), crop(32), flip, normalise(imagenet)")
    images = transforms.apply(packed.images([0, 1]), [0, 1], 0, 0)
    prefix = empty_prefix("resnet18", 6).to_empty(device="cpu")
    for tensor in prefix.state_dict().values():
        tensor.zero_()
    for _ in row_frames(run_prefix(prefix, images, "float32")):
        pass
