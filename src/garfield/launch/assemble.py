"""Builds node objects from settings: the same ones, whatever carries them.

A node is built from the settings, its name and a transport alone. Everything
random in it comes from the seed and the name, so a node can be built anywhere,
and built again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast
from zlib import crc32

import numpy as np

from garfield.adapters.contract import SGD, Adapter, Batch, FlatVector
from garfield.adapters.metrics import Metric
from garfield.apps import Run
from garfield.apps.application import WorkerPlace
from garfield.apps.groups import NONE, Learning, Samples
from garfield.apps.own_parts import (
    SGD_NAME,
    data_named,
    loss_named,
    metric_named,
    model_named,
    new_optimizer,
)
from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.core.frameworks import require
from garfield.data import DATASETS
from garfield.data.batches import Batches, EvaluationBatches
from garfield.data.contract import LearningData
from garfield.data.partitions import parse as parse_partition
from garfield.launch.adversary import Adversary
from garfield.nodes.node import NodeArguments
from garfield.nodes.outbox import Outbox
from garfield.nodes.plan import parse_plan
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Transport

EVALUATED_AT_ONCE = 500  # test samples in one forward pass
_DRAWN = 4  # beside the seed: what rules draw, not what partitions (1) and the like do
PROBED = 256  # training samples on which an application may look at the model before a run


@dataclass(frozen=True)
class Factory:
    """Builds the nodes of one run."""

    settings: Settings
    adapter: Callable[[str, bool], Adapter]
    """Called with a node's name and whether it needs an optimizer: a new model, or one that
    nodes share."""
    node: NodeArguments
    """What every node is given besides: its waits, its clock."""
    feed: Callable[[Batches], Any] = lambda batches: batches
    """What a worker's model is given of its batches; the model must know what to do with it."""
    secret: bool = False
    """Whether rules draw from the system's entropy, which no liar knows, instead of the seed."""
    adversary: Adversary = field(init=False)
    """Who of these nodes lies, and how."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "adversary", Adversary(self.settings))

    def worker(self, name: str, transport: Transport) -> Worker:
        s = self.settings
        outbox = self.adversary.outbox(name, transport)
        place = WorkerPlace(s, name, lambda whose: self.feed(self._batches(whose, name)))
        return s.application.worker(
            place, self._worker_model(name),
            transport=transport, servers=s.server_names, f_ps=s.numbers.f_ps, q_ps=s.numbers.q_ps,
            model_gar=s.model_rule, **self._node(name, outbox),
            momentum=s.learning.momentum - s.application.server_momentum(s),
        )  # fmt: skip

    def server(self, name: str, transport: Transport) -> Server:
        s = self.settings
        is_worker = name in s.worker_names  # too, where there are no servers
        outbox = self.adversary.outbox(name, transport)
        model = self.adapter(name, True)
        worker = None
        if is_worker:
            worker = Worker(
                model, self.feed(self._batches(name, name)), transport=transport, servers=[name],
                momentum=s.learning.momentum, **self._node(name, outbox, serves=False),
            )  # fmt: skip
        return s.application.server(
            model, transport=transport, workers=s.worker_names, servers=s.server_names,
            f_w=s.numbers.f_w, f_ps=s.numbers.f_ps, gar=s.rule, model_gar=s.model_rule,
            worker=worker, **self._node(name, outbox),
            test=evaluation_batches(self._dataset(), s.evaluation.test_images, s.seed),
        )  # fmt: skip

    def run(self, server: Server, after_step: Callable[[Server, Run[Any]], None]) -> Run[Any]:
        """What a server's loop is told."""
        s = self.settings
        return Run(s.steps, s.numbers, s.rule, s.model_rule, s.own, after_step, server)

    def _worker_model(self, name: str) -> Adapter:
        model = self.adapter(name, False)
        return cast(Adapter, Uncomputed(model)) if self.adversary.unheard(name) else model

    def _dataset(self) -> LearningData:
        return dataset(self.settings.samples, self.settings.seed)

    def _batches(self, name: str, reader: str) -> Batches:
        """A worker's batches, as somebody reads them who may turn their labels."""
        s = self.settings
        data, place = self._dataset(), s.all_workers.index(name)
        shares = shares_of(s.samples, s.nodes.workers, s.seed)
        targets, seed = data.targets("train"), (s.seed, place)
        if reader in s.liars and s.faults.worker_attack != NONE and data.class_count is not None:
            attack = parse_plan(s.faults.worker_attack).attack
            targets = targets if attack is None else attack.labels(targets, data.class_count)
        inputs = data.inputs("train")
        return Batches(inputs, targets, shares[place], s.learning.batch, seed, data.prepare)

    def _node(self, name: str, outbox: Outbox, *, serves: bool = True) -> NodeArguments:
        """What rules draw is fixed by the seed, for an experiment to be repeated; not in earnest,
        where liars know the seed."""
        drawn = (self.settings.seed, _DRAWN, crc32(name.encode()))
        rng = None if self.secret else np.random.default_rng(drawn)
        return {**self.node, "outbox": outbox, "serves": serves, "rng": rng}


class Uncomputed:
    """The adapter of a liar whose lie is made of others' vectors alone: it computes nothing."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def gradient(self, batch: Any, out: FlatVector) -> float:
        out.fill(0.0)
        return float("nan")


def evaluation_batches(data: LearningData, count: int = 0, seed: int = 0) -> Sequence[Batch]:
    """The test set, or `count` of its samples, in pieces that fit in memory."""
    every = len(data.targets("test"))
    chosen = np.arange(every)
    if 0 < count < every:
        chosen = np.sort(np.random.default_rng([seed, 2]).permutation(every)[:count])
    return EvaluationBatches(data, chosen, EVALUATED_AT_ONCE)


def dataset(samples: Samples, seed: int = 0) -> LearningData:
    """Read once a process: in a simulation, hundreds of workers share it.

    The seed draws what is held out to test on, where the data do not say.
    """
    drawn = 0 if samples.data in DATASETS else seed
    return _read(Samples(samples.data, samples.data_dir, image_side=samples.image_side), drawn)


@lru_cache(maxsize=2)
def _read(samples: Samples, seed: int) -> LearningData:
    return data_named(samples, seed)


@lru_cache(maxsize=2)
def metric_of(learning: Learning, samples: Samples, seed: int) -> Metric:
    """What models of such a run are judged by."""
    return metric_named(learning, dataset(samples, seed))


def forget_data() -> None:
    """Let go of the data that were read, and of what was worked out from them."""
    for kept in (_read, metric_of, shares_of, settled):
        kept.cache_clear()


def _check_batch(settings: Settings) -> None:
    """Raise ConfigError for a batch of more samples than all workers have together.

    A worker's own share may be smaller than its batch: it then sees samples twice in one.
    """
    samples, batch = settings.samples, settings.learning.batch
    count = len(dataset(samples, settings.seed).targets("train"))
    if batch > count:
        raise ConfigError(
            f"batch must be within 1..{count} (samples of {samples.data}), got {batch}."
        )


@lru_cache(maxsize=2)
def shares_of(samples: Samples, workers: int, seed: int) -> list[Any]:
    """Which samples each worker has: the same answer at every node."""
    data, deal = dataset(samples, seed), parse_partition(samples.partition)
    labels = data.targets("train")
    if data.class_count is None or labels.ndim != 1:
        if deal.name != "iid":
            raise ConfigError(
                f"{deal.name} deals samples out by class, and the targets of {samples.data} are "
                f"{labels.dtype} {labels.shape}. Use --partition iid."
            )
        labels = np.zeros(len(labels), np.int64)
    rng = np.random.default_rng([seed, 1])
    return list(deal(labels, workers=workers, rng=rng))


@lru_cache(maxsize=2)
def settled(settings: Settings) -> Settings:
    """Complete settings by what the application works out: the same answer at every node."""

    def probe() -> tuple[Adapter, Batch]:
        data = dataset(settings.samples, settings.seed)
        targets = data.targets("train")
        some = np.random.default_rng([settings.seed, 3]).permutation(len(targets))[:PROBED]
        batch = (data.prepare(data.inputs("train")[some]), targets[some])
        return new_adapter(settings, settings.frameworks[0], optimizer=False), batch

    _check_batch(settings)
    return settings.application.settled(settings, probe)


def new_adapter(settings: Settings, framework: str, *, optimizer: bool) -> Adapter:
    """A fresh model, the same at every node of a framework, with an optimizer at a server."""
    make = _torch_adapter if framework == "torch" else _tensorflow_adapter
    s = settings
    momentum = s.application.server_momentum(s)
    sgd = SGD(
        s.learning.learning_rate, s.learning.learning_rate_decay, momentum, s.learning.weight_decay
    )
    return make(settings, sgd if optimizer else None)


def _tensorflow_adapter(settings: Settings, sgd: SGD | None) -> Adapter:
    require(["tensorflow"])
    from garfield.adapters.tensorflow_adapter import TensorFlowAdapter
    from garfield.models import build_in_keras

    data = dataset(settings.samples, settings.seed)
    if data.class_count is None:
        raise ConfigError(
            f"With TensorFlow models learn classes here, and the targets of {settings.samples.data}"
            " are other numbers. Use --framework torch."
        )
    module = build_in_keras(settings.learning.model, classes=data.class_count, seed=settings.seed)
    if sgd is not None:
        return TensorFlowAdapter.with_sgd(module, sgd)
    adapter = TensorFlowAdapter(module)
    adapter.warm_up((settings.learning.batch, *data.shape))
    return adapter


def _torch_adapter(settings: Settings, sgd: SGD | None) -> Adapter:
    from garfield.adapters.torch_adapter import TorchAdapter, plain_sgd

    learning, data = settings.learning, dataset(settings.samples, settings.seed)
    module, loss = new_module(settings), loss_named(learning, data)
    metric = metric_of(learning, settings.samples, settings.seed)
    if sgd is None:
        return TorchAdapter(module, loss, metric=metric)
    plain = learning.optimizer == SGD_NAME
    make = plain_sgd if plain else new_optimizer(learning.optimizer)
    return TorchAdapter.with_sgd(module, sgd, loss=loss, metric=metric, new_optimizer=make)


def new_module(settings: Settings) -> Any:
    """A torch model as every node starts with it."""
    require(["torch"])
    from garfield.models import build_model

    data = dataset(settings.samples, settings.seed)
    channels = data.shape[0] if len(data.shape) == 3 else None
    return build_model(
        model_named(settings.learning.model), classes=data.class_count or 1, channels=channels,
        seed=settings.seed,
    )  # fmt: skip
