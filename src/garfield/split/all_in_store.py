"""A whole fine-tuning beside the store, as one request (ALL_IN_COS, section 5.4.1 of the thesis).

Nothing but losses and, at the end, the trained layers crosses the link. The price is the
server's: it needs the memory of the whole training batch, for as long as the training takes. A run
leaves the events of any split training (`training`), as if its split lay behind the last layer.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import uuid4

from garfield.core.config import settings_of, values_of
from garfield.core.errors import ConfigError, SplitError
from garfield.core.events import Event, Sink
from garfield.runs.process import peak_memory_bytes
from garfield.runs.run_directory import RunDirectory
from garfield.split import wire
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import default_transforms
from garfield.split.client.sampler import Sampler
from garfield.split.client.servers import Servers
from garfield.split.models.cutting import CutModel
from garfield.split.models.weights import UploadedWeights, put_weights, weights_name
from garfield.split.settings import FineTuning
from garfield.split.stores.contract import TRAINING_S
from garfield.split.training import check_finite, classes_of, loaded
from garfield.split.transforms import Transforms

_GROUPS = ("servers", "store", "recording")
_HEEDED = (
    "data", "model", "weights", "freeze", "classes", "batch", "epochs", "optimizer", "lr",
    "momentum", "server", "transforms", "seed",
)  # fmt: skip


def check_can_be_had(settings: FineTuning, also: Sequence[str] = ()) -> None:
    """Raise ConfigError for what a training beside the store does not do, and was asked for.

    `also` are further flags that were given and that it does not know.
    """
    values = values_of(settings)
    flags = [
        each.flag
        for each in settings_of(FineTuning)
        if each.group not in _GROUPS
        and each.name not in _HEEDED
        and values[each.name] != each.default
    ]
    if flags := [*also, *flags]:
        raise ConfigError(
            f"--all-in-store does without {', '.join(flags)}: the server trains on all of the data "
            "from first to last, as one request that nobody can resume. Leave them away."
        )
    if (ranks := int(os.environ.get("WORLD_SIZE", "1"))) > 1:  # as torchrun sets it
        raise ConfigError(
            "A training beside the store has no ranks, and this command was started as one of "
            f"{ranks}: each would have a server train all of it. Start it without torchrun."
        )
    if settings.optimizer != "sgd":
        raise ConfigError("A training beside the store knows sgd with momentum, and no more.")


def train_in_store(settings: FineTuning, directory: RunDirectory, tell: Sink) -> None:
    """Have a server train from first to last, and leave what it tells in the directory."""
    check_can_be_had(settings)
    settings.recording.check()
    if not settings.data:
        raise ConfigError("Where are the images? Give --data, as in s3://bucket/prefix.")
    with ExitStack() as stack:
        endpoint = settings.servers.server_s3_endpoint
        data = DataSet.open(settings.data, settings.store, endpoint)
        stack.callback(data.close)
        servers = Servers(settings.server, settings.servers)
        stack.callback(servers.close)
        model = loaded(settings, classes_of(settings, data))
        training = _Training(settings, data, servers, model)
        stack.enter_context(directory)
        directory.open(settings.without_secrets(), settings.recording.log)
        for event in training.events():
            directory.record(event)
            tell(event)


@dataclass
class _Training:
    """One that a server runs for us."""

    settings: FineTuning
    data: DataSet
    servers: Servers
    model: CutModel

    def events(self) -> Iterator[Event]:
        """All that is to be told of it, as it goes on."""
        yield self._began()
        asked, received = time.monotonic(), self.servers.received_bytes
        weights = put_weights(self.data.store, self.model.module)
        step = 0
        for told in self._told(self._request(weights)):
            if told["event"] == "there":
                continue
            if told["event"] == "done":
                yield {
                    **told, "step": step, "uploaded_bytes": weights.bytes_sent,
                    "retries": 0, "cache_hits": 0, "features_remade": 0,
                }  # fmt: skip
                return
            now, arrived = time.monotonic(), self.servers.received_bytes
            step = told["step"]
            yield {
                **told, "split": len(self.model.layers), "wait_s": now - asked, "compute_s": 0.0,
                "received_bytes": arrived - received, "peak_bytes": peak_memory_bytes(),
                "server_peak_bytes": 0,  # told at the end
            }  # fmt: skip
            check_finite(told["loss"], step, self.settings.lr)
            asked, received = now, arrived
        raise SplitError(f"The server ended its training without a word, after {step} batches.")

    def _began(self) -> Event:
        settings, counts = self.settings, tuple(each.count for each in self.data.objects)
        sampler = Sampler(counts, settings.batch, settings.loading.seed)
        return {
            "event": "began", "all_in_store": True, "step": 0, "epoch": 0,
            "model": self.model.name, "freeze": self.model.checked_freeze(settings.freeze),
            "batches": sampler.batches, "samples": sampler.total,
            "layers": list(self.model.layers),
            "stored_bytes": self.data.stored_bytes_per_sample,
        }  # fmt: skip

    def _request(self, weights: UploadedWeights) -> wire.TrainRequest:
        settings, objects = self.settings, self.data.objects
        transforms = settings.loading.transforms or default_transforms(settings.model)
        return wire.TrainRequest(
            self.data.url,
            tuple(stored.name for stored in objects),
            tuple(stored.count for stored in objects),
            tuple(stored.sha256 for stored in objects),
            settings.model,
            freeze=self.model.checked_freeze(settings.freeze),
            classes=classes_of(settings, self.data),
            weights=weights.hash,
            epochs=settings.epochs,
            batch=settings.batch,
            lr=settings.lr,
            momentum=settings.momentum,
            transforms=Transforms.parse(transforms).to_json(),
            seed=settings.loading.seed,
            # of this run alone: others train in the same container
            result=f".garfield/trained/{uuid4().hex}.safetensors",
        )

    def _told(self, request: wire.TrainRequest) -> Iterator[Event]:
        """What the server tells: of every batch, and of the end."""
        assert request.weights is not None
        names = [*request.objects, weights_name(request.weights)]
        access = self.data.access(names, writes=[request.result], lasts_s=TRAINING_S)
        body = wire.encode_request(request)
        for line in self.servers.lines("/v1/train", body, access):
            yield _event(line)


def _event(line: bytes) -> Event:
    """What a line tells; the refusal that it tells of, or SplitError if it makes no sense."""
    try:
        told = json.loads(line)
        if told["event"] == "batch":
            whole = {name: int(told[name]) for name in ("step", "epoch", "samples", "right")}
            # JSON has no number for a loss that is not finite
            loss = math.nan if told["loss"] is None else float(told["loss"])
            return {"event": "batch", **whole, "loss": loss}
        if told["event"] == "there":
            return {"event": "there"}
        if told["event"] == "done":
            return {
                "event": "done", "result": str(told["result"]), "waited_s": float(told["waited_s"]),
                "server_peak_bytes": int(told["server_peak_bytes"]),
            }  # fmt: skip
        refused = wire.Refusal.named(told["error"]).error(str(told["message"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SplitError("The server told of its training in words that are not ours.") from None
    raise refused
