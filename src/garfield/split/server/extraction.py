"""What a worker process does: read an object, run the first layers over it, send the features.

    prefix ← the registered layers or the checked graph, with the weights of that hash
    object ← the store, read with the tenant's own rights, refused by name if it was altered
    for every COS batch: decode and transform a few images at a time, run the prefix, send

Rows leave as soon as they are computed, or are stored beside the object (`feature_objects`).
Neither model nor object outlives its task: a server holds no state of a tenant. `split 0` has no
layers: the transformed images are the features.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from garfield.core.errors import GarfieldError
from garfield.split.feature_objects import features_name, pack_features
from garfield.split.server.extraction_sizes import AT_ONCE, ROWS_BYTES
from garfield.split.server.messages import Kind, Message, WorkerSide
from garfield.split.server.reading import read_object, tenants_store
from garfield.split.wire import (
    ExtractRequest,
    FeatureHeader,
    Model,
    Refusal,
    as_refusal,
    decode_request,
    row_frames,
)


def extract(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Features of the samples of one object, from the row at which an earlier try has ended."""
    request = decode_request(task["request"].encode(), ExtractRequest)
    clock, header = Clock(), int(task["rows_done"]) > 0
    labels, batches = _computed(request, task, side, clock)
    for features in batches:
        if not header:
            shape = (len(labels), *features.shape[1:])
            told = FeatureHeader(request.dtype, shape, labels, request.compression)
            side.send(Message(Kind.HEADER, told.encode()))
            header = True
        with clock.timing("send"):
            _send_rows(side, features, request.compression)
        del features
        if side.called_off():
            break
    return {"seconds": clock.seconds}


def materialise(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Store the features of all samples of one object beside it, with the tenant's rights."""
    request = decode_request(task["request"].encode(), ExtractRequest)
    clock, filled = Clock(), 0
    labels, batches = _computed(request, task, side, clock)
    values = np.empty(0, request.dtype)
    for features in batches:
        if not filled:
            values = np.empty((len(labels), *features.shape[1:]), request.dtype)
        values[filled : filled + len(features)] = features
        filled += len(features)
        del features
        if side.called_off():
            return {"seconds": clock.seconds}
        side.send(Message(Kind.ROWS))  # not stuck: a batch is done
    packed = pack_features(request, values, labels)
    with clock.timing("put"), refused_as(Refusal.FAILED):
        store = tenants_store(request.data, task["access"], task["store"])
        store.put(features_name(request), packed)
    return {"seconds": clock.seconds, "stored_bytes": len(packed)}


def _computed(
    request: ExtractRequest, task: Mapping[str, Any], side: WorkerSide, clock: Clock
) -> tuple[tuple[int, ...], Iterator[np.ndarray[Any, Any]]]:
    """Labels of the samples asked for, and their features, a COS batch at a time."""
    with clock.timing("weights"):
        prefix = made_prefix(request, request.split, task["weights_file"])
    with clock.timing("read"):
        packed = opened(request, task)
    indices = _indices(request, packed.count)
    if task["work"] == "materialise" and len(indices) != packed.count:
        raise Refusal.MALFORMED.error(
            f"{request.object_name} has {packed.count} samples, and the request names "
            f"{len(indices)}: features are kept of all."
        )
    transforms, expected = _transforms(request.transforms), tuple(task["input_shape"])

    def batches() -> Iterator[np.ndarray[Any, Any]]:
        batch = int(task["batch"])
        for lo in range(int(task["rows_done"]), len(indices), batch):
            chosen = indices[lo : lo + batch]
            with clock.timing("decode"):
                images = _transformed(packed, chosen, transforms, request, expected, side)
            with clock.timing("forward"), refused_as(Refusal.BAD_MODEL):
                features = run_prefix(prefix, images, request.dtype)
            del images
            yield features
            del features

    return tuple(int(packed.labels[index]) for index in indices), batches()


def made_prefix(model: Model, split: int, weights_file: str | None) -> torch.nn.Module | None:
    """The first layers, with their weights; None if there are none."""
    if split == 0:
        return None
    from garfield.split.models import empty_prefix, load

    with refused_as(Refusal.BAD_MODEL):
        if model.graph is not None:
            from garfield.split.models.graph import from_json

            prefix: torch.nn.Module = from_json(model.graph)
        else:
            assert model.model is not None
            if model.weights is None:
                return load(model.model).prefix(split)
            prefix = empty_prefix(model.model, split)
        if model.weights is not None and weights_file is not None:
            from garfield.split.models.weights import load_weights

            load_weights(prefix, mapped(weights_file))
    return prefix


def mapped(path: str) -> mmap.mmap:
    """A file as memory that is shared with whoever has it mapped too.

    The server has compared its hash with its name when it was fetched.
    """
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def run_prefix(
    prefix: torch.nn.Module | None, images: torch.Tensor, dtype: str
) -> np.ndarray[Any, Any]:
    """Features of a batch, as they travel."""
    with torch.inference_mode():
        features = images if prefix is None else prefix(images)
        features = features.to(getattr(torch, dtype)).contiguous()
    array: np.ndarray[Any, Any] = features.numpy()
    return array


def opened(request: ExtractRequest, task: Mapping[str, Any]) -> Any:
    """The object, whole and unaltered; refused by name otherwise."""
    from garfield.split.objects import open_object

    with refused_as(Refusal.BROKEN_OBJECT):
        store = tenants_store(request.data, task["access"], task["store"])
        data = read_object(store, request.object_name, task["object_bytes"])
        return open_object(request.object_name, data, request.sha256)


@contextmanager
def refused_as(otherwise: Refusal) -> Iterator[None]:
    """Errors of ours become refusals; those of torch about a model's shapes, too."""
    try:
        yield
    except GarfieldError as error:
        raise as_refusal(error, otherwise) from None
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if otherwise is not Refusal.BAD_MODEL or "can't allocate memory" in str(error):
            raise
        raise otherwise.error(f"The model cannot run on this input: {str(error)[:300]}") from None


class Clock:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[what] = self.seconds.get(what, 0.0) + spent


def _indices(request: ExtractRequest, count: int) -> Sequence[int]:
    indices = range(count) if request.samples is None else request.samples
    if len(indices) == 0 or max(indices) >= count:
        last = max(indices, default=0)
        raise Refusal.MALFORMED.error(
            f"{request.object_name} has {count} samples; the request names number {last}."
        )
    return indices


def _transforms(text: str) -> Any:
    from garfield.split.transforms import Transforms

    with refused_as(Refusal.MALFORMED):
        return Transforms.from_json(text)


def _transformed(
    packed: Any,
    indices: Sequence[int],
    transforms: Any,
    request: ExtractRequest,
    shape: tuple[int, ...],
    side: WorkerSide,
) -> torch.Tensor:
    """A batch, decoded and transformed a few images at a time into one tensor."""
    batch = torch.empty(len(indices), *shape, dtype=torch.float32)
    with refused_as(Refusal.BROKEN_OBJECT):
        for lo in range(0, len(indices), AT_ONCE):
            if side.called_off():
                raise Refusal.SLOW.error("The client has gone.")
            few = [*indices[lo : lo + AT_ONCE]]
            ids = [request.first_sample_id + index for index in few]
            ready = transforms.apply(packed.images(few), ids, request.seed, request.epoch)
            if tuple(ready.shape[1:]) != shape:
                raise Refusal.MALFORMED.error(
                    f"{request.object_name}: image {few[0]} is {tuple(ready.shape[1:])} after the "
                    f"transforms, and memory was reserved for {shape}. End them with a crop."
                )
            batch[lo : lo + len(few)] = ready
    return batch


def _send_rows(side: WorkerSide, features: np.ndarray[Any, Any], compression: str) -> None:
    """Whole rows in every message, so that a later try knows where to go on."""
    row_bytes = max(1, features[0].nbytes)
    at_once = max(1, ROWS_BYTES // row_bytes)
    for lo in range(0, len(features), at_once):
        rows = features[lo : lo + at_once]
        side.send(Message(Kind.ROWS, b"".join(row_frames(rows, compression)), len(rows)))
