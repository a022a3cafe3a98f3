"""A whole fine-tuning beside the store, as one request (ALL_IN_COS, section 5.4.1 of the thesis).

Nothing but losses and, at the end, the trained layers crosses the link. The price is the
server's: it needs the memory of the whole training batch, for as long as the training takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from garfield.core.errors import ConfigError, SplitError
from garfield.core.events import Event, Sink
from garfield.split import wire
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import default_transforms
from garfield.split.client.servers import Servers
from garfield.split.models.weights import put_weights, weights_name
from garfield.split.settings import FineTuning
from garfield.split.training import loaded
from garfield.split.transforms import Transforms


@dataclass(frozen=True)
class TrainedInStore:
    """What came of it."""

    time_s: float
    iterations: int
    loss: float
    accuracy: float
    """Of the samples trained on, in the last epoch."""
    received_bytes: int
    uploaded_bytes: int
    result: str
    """The object that holds the trained layers, as safetensors."""
    peak_memory_server_bytes: int
    waited_s: float
    """For memory at the server."""


def train_in_store(settings: FineTuning, tell: Sink) -> TrainedInStore:
    """Have a server train from first to last; `tell` hears of every batch."""
    if settings.optimizer != "sgd" or settings.weight_decay:
        raise ConfigError("A training beside the store knows sgd with momentum, and no more.")
    if not settings.data:
        raise ConfigError("Where are the images? Give --data, as in s3://bucket/prefix.")
    with ExitStack() as stack:
        endpoint = settings.servers.server_s3_endpoint
        data = DataSet.open(settings.data, settings.store, endpoint)
        stack.callback(data.close)
        servers = Servers(settings.server, settings.servers)
        stack.callback(servers.close)
        began = time.monotonic()
        classes = settings.classes or len(data.classes)
        model = loaded(settings, classes)
        uploaded = put_weights(data.store, model.module)
        text = settings.loading.transforms or default_transforms(settings.model)
        request = wire.TrainRequest(
            settings.data,
            tuple(stored.name for stored in data.objects),
            settings.model,
            freeze=model.checked_freeze(settings.freeze),
            classes=classes,
            weights=uploaded.hash,
            epochs=settings.epochs,
            batch=settings.batch,
            lr=settings.lr,
            momentum=settings.momentum,
            transforms=Transforms.parse(text).to_json(),
            seed=settings.loading.seed,
        )
        names = [*request.objects, weights_name(uploaded.hash)]
        access = data.access(names, writes=[request.result])
        batches, end = _followed(servers, wire.encode_request(request), access, tell)
        last = [each for each in batches if each["epoch"] == settings.epochs - 1]
        return TrainedInStore(
            time_s=time.monotonic() - began,
            iterations=len(batches),
            loss=batches[-1]["loss"],
            accuracy=sum(each["right"] for each in last) / sum(each["samples"] for each in last),
            received_bytes=servers.received_bytes,
            uploaded_bytes=uploaded.bytes_sent,
            result=request.result,
            peak_memory_server_bytes=int(end["peak_bytes"]),
            waited_s=float(end["waited_s"]),
        )


def _followed(
    servers: Servers, body: bytes, access: str, tell: Sink
) -> tuple[list[Mapping[str, Any]], Event]:
    """The batches that a server tells of, and how it ended."""
    batches: list[Mapping[str, Any]] = []
    for line in servers.lines("/v1/train", body, access):
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise SplitError(
                "The server told of its training in words that are not ours."
            ) from None
        if kind == "batch":
            batches.append(event)
        elif kind == "failed":
            raise wire.Refusal.named(event.get("error")).error(str(event.get("message")))
        elif kind == "done" and batches:
            return batches, event
        tell(event)
    raise SplitError(f"The server ended its training without a word, after {len(batches)} batches.")
