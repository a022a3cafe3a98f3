"""From settings to node objects: the same ones, whatever carries them.

A node is built from the settings, its name and a transport alone. Everything
random in it comes from the seed and the name, so a node can be built anywhere,
and built again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from garfield.adapters.contract import Adapter
from garfield.apps import Run
from garfield.data import Dataset, load
from garfield.data.batches import Batches
from garfield.data.partitions import parse as parse_partition
from garfield.launch.settings import NONE, Settings
from garfield.nodes.byzantine import LyingOutbox, Spy, parse_plan
from garfield.nodes.outbox import Outbox
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Key, Transport, all_of

EVALUATED_AT_ONCE = 500  # test images in one forward pass


@dataclass(frozen=True)
class Factory:
    """Builds the nodes of one run."""

    settings: Settings
    adapter: Callable[[bool], Adapter]
    """Called with whether an optimizer is needed: a new model, or one that nodes share."""
    node: dict[str, Any]
    """What every node is given besides: its waits, its clock."""

    def worker(self, name: str, transport: Transport) -> Worker:
        s = self.settings
        outbox = self._outbox(name, transport, s.worker_names, s.worker_attack)
        data: Any = self._batches(name)
        if s.application.shared_data:
            data = [self._batches(each) for each in s.worker_names]
        return s.application.worker(
            self.adapter(False), data, transport=transport, servers=s.server_names,
            f_ps=s.numbers.f_ps, q_ps=s.numbers.q_ps, model_gar=s.model_rule,
            momentum=s.momentum, outbox=outbox, **self.node,
            **s.application.worker_arguments(s, s.numbers),
        )  # fmt: skip

    def server(self, name: str, transport: Transport) -> Server:
        s = self.settings
        attack = s.worker_attack if s.application.peers else s.server_attack
        outbox = self._outbox(name, transport, s.server_names, attack)
        model = self.adapter(True)
        worker = None
        if s.application.peers:
            worker = Worker(
                model, self._batches(name), transport=transport, servers=[name],
                momentum=s.momentum, outbox=outbox, serves=False, **self.node,
            )  # fmt: skip
        return s.application.server(
            model, transport=transport, workers=s.worker_names, servers=s.server_names,
            f_w=s.numbers.f_w, f_ps=s.numbers.f_ps, test=test_batches(self._dataset()),
            worker=worker, outbox=outbox, **self.node,
        )  # fmt: skip

    def run(self, after_step: Callable[[Server, Run], None]) -> Run:
        """What a server's loop is told."""
        s = self.settings
        return Run(s.steps, s.numbers, s.rule, s.model_rule, s.contractions, s, after_step)

    def _dataset(self) -> Dataset:
        return dataset(self.settings.data, self.settings.data_dir)

    def _batches(self, name: str) -> Batches:
        s = self.settings
        data, place = self._dataset(), s.worker_names.index(name)
        shares = partition_of(s.data, s.data_dir, s.partition, len(s.worker_names), s.seed)
        labels = data.labels("train")
        if name in s.liars and s.worker_attack != NONE:
            attack = parse_plan(s.worker_attack).attack
            labels = labels if attack is None else attack.labels(labels, len(data.classes))
        pixels, seed = data.pixels("train"), (s.seed, place)
        return Batches(pixels, labels, shares[place], s.batch, seed, data.prepare)

    def _outbox(self, name: str, transport: Transport, alike: Sequence[str], attack: str) -> Outbox:
        s = self.settings
        if name not in s.liars or attack == NONE:
            return Outbox()
        liars = [peer for peer in alike if peer in s.liars]
        honest = [peer for peer in alike if peer not in s.liars]
        plan = parse_plan(
            attack, n=len(alike), f=len(liars), rank=liars.index(name), seed=s.seed,
            spy=_spy(transport, honest, s.timeout_s), defence=self._defence(name),
        )  # fmt: skip
        return LyingOutbox(plan, name)

    def _defence(self, name: str) -> Callable[[Any], Any]:
        """What the honest will do to the rows: for attacks that aim at it."""
        s = self.settings
        if name in s.worker_names:
            return lambda rows: s.rule(rows, f=s.numbers.f_w)
        return lambda rows: s.model_rule(rows, f=s.numbers.f_ps)


def _spy(transport: Transport, honest: Sequence[str], timeout_s: float) -> Spy:
    """What the honest published under a key: they tell whoever asks, in an experiment."""

    def look(key: Key, length: int) -> Any:
        found = transport.pull(
            honest, key, length=length, until=all_of(honest), timeout_s=timeout_s
        )
        return np.stack(found.rows) if found.rows else None

    return look


def test_batches(data: Dataset) -> list[tuple[Any, Any]]:
    """The test set in pieces that fit in memory."""
    images, labels = data.images("test"), data.labels("test")
    cuts = range(0, len(labels), EVALUATED_AT_ONCE)
    return [
        (images[at : at + EVALUATED_AT_ONCE], labels[at : at + EVALUATED_AT_ONCE]) for at in cuts
    ]


@lru_cache(maxsize=2)
def dataset(name: str, data_dir: str | None) -> Dataset:
    """Read once a process: in a simulation, hundreds of workers share it."""
    return load(name, data_dir)


@lru_cache(maxsize=2)
def partition_of(
    data: str, data_dir: str | None, partition: str, workers: int, seed: int
) -> list[Any]:
    """Who gets which samples: the same answer at every node."""
    labels = dataset(data, data_dir).labels("train")
    rng = np.random.default_rng([seed, 1])
    return list(parse_partition(partition)(labels, workers=workers, rng=rng))


def torch_adapter(settings: Settings, *, optimizer: bool) -> Adapter:
    """A fresh model, the same at every node, with plain SGD at a server."""
    import torch

    from garfield.adapters.torch_adapter import TorchAdapter
    from garfield.models import build

    data = dataset(settings.data, settings.data_dir)
    module = build(settings.model, classes=len(data.classes), seed=settings.seed)
    if not optimizer:
        return TorchAdapter(module)
    sgd = torch.optim.SGD(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    if not settings.learning_rate_decay:
        return TorchAdapter(module, optimizer=sgd)
    decreasing = torch.optim.lr_scheduler.LambdaLR(
        sgd, lambda step: 1 / (1 + settings.learning_rate_decay * step)
    )
    return TorchAdapter(module, optimizer=sgd, scheduler=decreasing)
