"""Fine-tuning from first to last inside a worker: what ALL_IN_COS pushes down (thesis, 5.4.1).

Images are read, transformed, passed through all layers and trained on beside the store, with
the training batch throughout: a batch cannot be smaller for the first layers than for the
last, so memory is what the whole training needs, for as long as it takes. The order of samples
and the randomness of steps are those of a client's training with the same seed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.nn import functional

from garfield.core.files import as_json
from garfield.split.client.sampler import Piece, Place, Sampler
from garfield.split.server.extraction import Clock, mapped, refused_as
from garfield.split.server.extraction_sizes import AT_ONCE, OBJECTS_HELD
from garfield.split.server.messages import Kind, Message, WorkerSide
from garfield.split.server.reading import read_object, tenants_store
from garfield.split.wire import Refusal, TrainRequest, decode_request


def train(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Train, tell every batch's loss as a line of JSON, and store the trained layers."""
    request = decode_request(task["request"].encode(), TrainRequest)
    clock, step = Clock(), 0
    with refused_as(Refusal.BROKEN_OBJECT):
        images = _TenantsImages(request, task)
    tail, optimizer = _made(request, task["weights_file"])
    sampler = Sampler(request.counts, request.batch, request.seed)
    for epoch in range(request.epochs):
        for share in sampler.shares(Place(epoch)):
            with clock.timing("decode"), refused_as(Refusal.BROKEN_OBJECT):
                batch, labels = images.batch(share.pieces, epoch)
            with clock.timing("train"), refused_as(Refusal.BAD_MODEL):
                loss, right = train_step(tail, optimizer, batch, labels, request.seed, step)
            step += 1
            told = {"event": "batch", "step": step, "epoch": epoch, "loss": loss}
            line = as_json({**told, "samples": len(labels), "right": right}) + "\n"
            side.send(Message(Kind.ROWS, line.encode()))
            if side.called_off():
                return {"seconds": clock.seconds}
            del batch, labels
    from garfield.split.models.weights import pack_weights

    del images
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()  # to pack was measured without all these
    store = tenants_store(request.data, task["access"], task["store"])
    with refused_as(Refusal.FAILED), clock.timing("put"):
        store.put(request.result, pack_weights(tail.trained))
    return {"seconds": clock.seconds, "steps": step, "result": request.result}


def rehearse_training(task: Mapping[str, Any], side: WorkerSide) -> Mapping[str, Any]:
    """Train one step on made-up batches of given sizes, with a mark after each.

    The first mark is of what no batch changes: to load the weights, and to pack those trained.
    """
    from garfield.split.models.weights import pack_weights

    request = decode_request(task["request"].encode(), TrainRequest)
    tail, optimizer = _made(request, task["weights_file"])
    clock = Clock()
    with clock.timing("pack"):
        pack_weights(tail.trained)
    side.mark()
    for batch in task["batches"]:
        images = torch.zeros(batch, *task["input_shape"])
        labels = torch.zeros(batch, dtype=torch.int64)
        with clock.timing(f"train {batch}"), refused_as(Refusal.BAD_MODEL):
            train_step(tail, optimizer, images, labels, 0, 0)
        del images
        side.mark()
    return {"seconds": clock.seconds, "out_shape": []}


def train_step(
    tail: Any,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    seed: int,
    step: int,
) -> tuple[float, int]:
    """One update on a whole batch, as the client's training does it."""
    from garfield.split.training import check_labels, step_seed

    with torch.enable_grad():
        torch.manual_seed(step_seed(seed, step))
        scores = tail(images)
        check_labels(labels, scores.shape[1])
        loss = functional.cross_entropy(scores, labels, reduction="sum") / len(labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.detach()), int((scores.argmax(1) == labels).sum())


def _made(request: TrainRequest, weights_file: str | None) -> tuple[Any, torch.optim.Optimizer]:
    """The layers, frozen up to where the request says, and what trains the others."""
    from garfield.split.models import load
    from garfield.split.models.weights import load_weights

    with refused_as(Refusal.BAD_MODEL):
        model = load(request.model, classes=request.classes, seed=request.seed)
        if request.weights is not None and weights_file is not None:
            load_weights(model.module, mapped(weights_file))
        tail = model.tail(0, request.freeze)
    tail.train()
    return tail, torch.optim.SGD(tail.trained.parameters(), request.lr, request.momentum)


class _TenantsImages:
    """Images of the tenant's objects, of which a few are held."""

    def __init__(self, request: TrainRequest, task: Mapping[str, Any]) -> None:
        from garfield.split.transforms import Transforms

        self._request, self._sizes = request, task["object_bytes"]
        self._store = tenants_store(request.data, task["access"], task["store"])
        self._transforms = Transforms.from_json(request.transforms)
        self._shape = tuple(task["input_shape"])
        self._first_ids = (0, *accumulate(request.counts))
        self._held: OrderedDict[int, Any] = OrderedDict()

    def batch(self, pieces: Sequence[Piece], epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        total = sum(map(len, pieces))
        images = torch.empty(total, *self._shape)
        labels = torch.empty(total, dtype=torch.int64)
        at = 0
        for number, indices in self._few(pieces):
            packed, first = self._object(number), self._first_ids[number]
            ids = [first + index for index in indices]
            ready = self._transforms.apply(packed.images(indices), ids, self._request.seed, epoch)
            if tuple(ready.shape[1:]) != self._shape:
                raise Refusal.MALFORMED.error(
                    f"{self._request.objects[number]}: images are {tuple(ready.shape[1:])} after "
                    f"the transforms, and memory was reserved for {self._shape}."
                )
            images[at : at + len(indices)] = ready
            for place, index in enumerate(indices, at):
                labels[place] = int(packed.labels[index])
            at += len(indices)
        return images, labels

    @staticmethod
    def _few(pieces: Sequence[Piece]) -> Iterator[tuple[int, list[int]]]:
        for piece in pieces:
            for lo in range(0, len(piece.indices), AT_ONCE):
                yield piece.object, [*piece.indices[lo : lo + AT_ONCE]]

    def _object(self, index: int) -> Any:
        if index not in self._held:
            while len(self._held) >= OBJECTS_HELD:
                self._held.popitem(last=False)
            self._held[index] = self._opened(index)
        return self._held[index]

    def _opened(self, index: int) -> Any:
        """An object as the index tells of it; refused by name if it is another."""
        from garfield.split.objects import open_object

        request = self._request
        name, count = request.objects[index], request.counts[index]
        data = read_object(self._store, name, self._sizes[index])
        found = open_object(name, data, request.sha256[index])
        if found.count != count:
            raise Refusal.BROKEN_OBJECT.error(
                f"{name} has {found.count} samples; the request says {count}."
            )
        return found
