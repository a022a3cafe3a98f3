"""One device: its data, and what it does with two networks when the server asks it to.

A device is given a learning state and a `Task`, trains generator and discriminator on its own
samples, and gives the new state back. Nothing else leaves it but its metadata.

One iteration, as fast as a bare loop has it: the generator's images are made once, scored for the
discriminator's step without a gradient to the generator, and scored again for the generator's own
by the discriminator as it is after that step, whose weights take no gradient then. With
`generator_every` E the generator steps in every E-th iteration only, and its images are made
without a gradient in the others (Figure 6.12: what a lone generator at the server would see).

All that is drawn (batches, noise, dropout) comes from the task's seed, which depends on run,
round and device alone: a simulated device does what a real one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from garfield.core.bounds import shown
from garfield.core.errors import InputError
from garfield.core.types import Indices
from garfield.fedgan.averaging import (
    State,
    load_networks,
    load_optimizers,
    network_state,
    optimizer_state,
)
from garfield.fedgan.gan import Gan
from garfield.fedgan.load import Load, drawn
from garfield.fedgan.settings import MOST_BATCH, MOST_STEPS

_TASKS = {
    "round": (0, 2**32), "batch": (1, MOST_BATCH), "steps": (1, MOST_STEPS),
    "generator_every": (1, MOST_STEPS), "seed": (0, 2**63 - 1),
}  # fmt: skip
"""What may be asked of a device: the least and the most of each."""


@dataclass(frozen=True, eq=False)
class DeviceData:
    """The samples of one device: rows of an array of images, which many may share in memory."""

    images: Tensor
    """(n, c, h, w), bytes from 0 to 255, or floats in [-1, 1]."""
    labels: Tensor
    """(n,) int64"""
    rows: Indices | None = None
    """Which of them are this device's; None: all."""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype not in (torch.uint8, torch.float32):
            raise InputError(
                "Images must be (n, c, h, w), as bytes or as float32 in [-1, 1], got "
                f"{self.images.dtype} {tuple(self.images.shape)}."
            )
        if self.labels.shape != (len(self.images),) or self.labels.dtype != torch.int64:
            raise InputError(
                f"{len(self.images)} images need as many int64 labels, got {self.labels.dtype} "
                f"{tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        return len(self.images) if self.rows is None else len(self.rows)

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width) of each."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def batch(self, at: Indices) -> tuple[Tensor, Tensor]:
        """Images in [-1, 1] and labels of some of this device's samples."""
        rows = torch.from_numpy(at if self.rows is None else self.rows[at])
        images = self.images[rows]
        if images.dtype == torch.uint8:
            images = images.float().div_(127.5).sub_(1)
        return images, self.labels[rows]

    def class_counts(self, classes: int) -> tuple[int, ...]:
        """How many samples of each class there are."""
        labels = self.labels if self.rows is None else self.labels[torch.from_numpy(self.rows)]
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise InputError(
                f"Labels run from {int(labels.min())} to {int(labels.max())}, not within "
                f"0..{classes - 1}."
            )
        return tuple(torch.bincount(labels, minlength=classes).tolist())

    @staticmethod
    def unlabelled(images: Tensor, rows: Indices | None = None) -> DeviceData:
        """Images without labels: all of class 0, until clusters tell them apart (`clustering`)."""
        return DeviceData(images, torch.zeros(len(images), dtype=torch.int64), rows)

    def relabelled(self, labels: Tensor) -> DeviceData:
        """The same images under other labels."""
        return replace(self, labels=labels)

    def labelled(self, own: Tensor) -> DeviceData:
        """The same images, those of this device under these labels."""
        if self.rows is None:
            return self.relabelled(own)
        labels = torch.zeros(len(self.images), dtype=torch.int64)
        labels[torch.from_numpy(self.rows)] = own
        return self.relabelled(labels)


@dataclass(frozen=True)
class Task:
    """What the server asks of a device in a round."""

    round: int
    load: Load
    generator_every: int
    seed: int
    """Of all that the device draws in this round."""
    keeps_optimizer: bool
    """Optimizers go on from the state that comes with the networks, and are sent back."""

    def as_json(self) -> dict[str, Any]:
        """What is sent beside the learning state."""
        return {
            "round": self.round, "batch": self.load.batch, "steps": self.load.steps,
            "generator_every": self.generator_every, "seed": self.seed,
            "keeps_optimizer": self.keeps_optimizer,
        }  # fmt: skip

    @staticmethod
    def read(content: Any) -> Task:
        """What a server has sent, checked."""
        if not isinstance(content, dict) or set(content) != {*_TASKS, "keeps_optimizer"}:
            raise InputError(f"This is no task: {shown(content)}.")
        for name, (least, most) in _TASKS.items():
            number = content[name]
            if type(number) is not int or not least <= number <= most:
                raise InputError(
                    f"A task's {name} must be a whole number within {least}..{most}, got "
                    f"{shown(number)}."
                )
        return Task(
            content["round"], Load(content["batch"], content["steps"]),
            content["generator_every"], content["seed"], content["keeps_optimizer"] is True,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Update:
    """What a device gives back."""

    state: State
    generator_loss: float
    """The last one."""
    discriminator_loss: float
    epsilon: float | None = None
    """What this device has spent of its privacy so far, if it keeps an account."""
    spent: bool = False
    """It cannot pay for another such task, and is not to be asked any more."""


class Training(Protocol):
    """What a device trains with: a `Trainer`, or one that keeps an account of privacy."""

    def train(self, data: DeviceData, state: State, task: Task) -> Update: ...


class Trainer:
    """Two networks to train on: a device's own, or one pair that all simulated devices share."""

    def __init__(self, gan: Gan) -> None:
        self.gan = gan
        self.networks = gan.build(seed=0)

    def train(self, data: DeviceData, state: State, task: Task) -> Update:
        """Do the task, beginning from that state."""
        optimizers = begun_from(self.gan, self.networks, state, task)
        with drawing_from(task.seed):
            losses = iterate(self.gan, self.networks, optimizers, data, task)
        kept = optimizer_state(optimizers) if task.keeps_optimizer else {}
        return Update(network_state(self.networks) | kept, *losses)


def begun_from(
    gan: Gan, networks: tuple[nn.Module, nn.Module], state: State, task: Task
) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Put a state into both networks; optimizers for them, new ones or those of the state."""
    load_networks(networks, state)
    optimizers = gan.optimizers(networks)
    if task.keeps_optimizer:
        load_optimizers(optimizers, state)
    return optimizers


def iterate(
    gan: Gan,
    networks: tuple[nn.Module, nn.Module],
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
    data: DeviceData,
    task: Task,
) -> tuple[float, float]:
    """All iterations of a task; the last losses of generator and discriminator."""
    generator, discriminator = networks
    generator.train()
    discriminator.train()
    batches = np.random.default_rng(task.seed)
    generator_loss = discriminator_loss = torch.tensor(0.0)
    for step in range(1, task.load.steps + 1):
        real, labels = data.batch(drawn(len(data), task.load.batch, batches))
        both = step % task.generator_every == 0
        given = () if gan.conditional_on is None else (labels,)
        with torch.set_grad_enabled(both):
            fake = generator(gan.noise(len(real)), *given)
        discriminator_loss = gan.discriminator_loss(
            discriminator(real, *given), discriminator(fake.detach(), *given)
        )
        stepped(optimizers[1], discriminator_loss)
        if both:
            with frozen(discriminator):
                generator_loss = gan.generator_loss(discriminator(fake, *given))
                stepped(optimizers[0], generator_loss)
    return float(generator_loss.detach()), float(discriminator_loss.detach())


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Let torch draw from a seed, and put its state back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def stepped(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step down the gradient of a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Take no gradient for its weights: only what flows through to the generator counts."""
    trained = [each for each in network.parameters() if each.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
