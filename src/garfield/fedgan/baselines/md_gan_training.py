"""MD-GAN's server and devices in one process, one iteration after the other; bytes are counted.

What travels are the vectors that would travel between machines: a device is handed a copy, and
nothing else. Devices take their turns in order, so the same seed gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.baselines.md_gan import MdGanDevice, MdGanServer
from garfield.fedgan.gan import Gan


@dataclass
class Traffic:
    """Bytes of one device so far, as its server sees them."""

    down: int = 0
    """To the device: generated images, and discriminators of others."""
    up: int = 0
    """From the device: feedback, and its discriminator."""


class MdGanTraining:
    """Trains one generator with the images of many devices."""

    def __init__(
        self,
        gan: Gan,
        shares: Sequence[tuple[Tensor, Tensor]],
        *,
        batch: int = 50,
        k: int | None = None,
        discriminator_steps: int = 1,
        epochs_per_swap: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`shares` are each device's images (n, c, h, w) in [-1, 1] and labels (n,).

        Discriminators change places after m·E/b iterations, m the mean number of images of a
        device, E the `epochs_per_swap`, b the batch; never if E is 0.
        """
        for number, (images, _) in enumerate(shares):
            if not len(images):
                raise InputError(f"Device {number} has no images. Leave it out.")
        if not shares:
            raise ConfigError("MD-GAN needs at least 1 device, got none.")
        if batch < 1:
            raise ConfigError(f"A batch must hold at least 1 image, got {batch}.")
        if epochs_per_swap < 0:
            raise ConfigError(f"epochs_per_swap must not be negative, got {epochs_per_swap}.")
        image = shares[0][0].shape[1:]
        self.server = MdGanServer(
            gan,
            (int(image[0]), int(image[1]), int(image[2])),
            len(shares),
            batch=batch,
            k=k,
            swap_every=swap_period([len(images) for images, _ in shares], batch, epochs_per_swap),
            seed=seed,
        )
        self.devices = [
            MdGanDevice(
                gan, images, labels, self.server.messages, number=number,
                discriminator_steps=discriminator_steps, seed=seed,
            )
            for number, (images, labels) in enumerate(shares)
        ]  # fmt: skip
        self.traffic = [Traffic() for _ in shares]

    @property
    def iteration(self) -> int:
        """How many there were."""
        return self.server.iteration

    def iterate(self) -> None:
        """One iteration of all."""
        self.server.draw()
        for number, device in enumerate(self.devices):
            batches = self.server.batches_for(number)
            feedback = device.feedback(batches)
            self._count(number, down=batches.nbytes, up=feedback.nbytes)
            self.server.take_feedback(number, feedback)
        self.server.update()
        self._swap()

    def state(self) -> dict[str, Tensor]:
        """All that it takes to go on from here, in another process."""
        moved = [[each.down, each.up] for each in self.traffic]
        state = {f"server.{name}": tensor for name, tensor in self.server.state().items()}
        for number, device in enumerate(self.devices):
            own = device.state()
            state |= {f"device-{number}.{name}": tensor for name, tensor in own.items()}
        return state | {"traffic": torch.tensor(moved)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave; InputError if it is of another training."""
        if state["traffic"].shape != (len(self.devices), 2):
            raise InputError(
                f"The saved training has {len(state['traffic'])} devices, not {len(self.devices)}."
            )
        self.server.restore(_below("server", state))
        for number, device in enumerate(self.devices):
            device.restore(_below(f"device-{number}", state))
        self.traffic = [Traffic(down, up) for down, up in state["traffic"].tolist()]

    def train(
        self,
        iterations: int,
        *,
        every: int = 0,
        then: Callable[[MdGanTraining], None] | None = None,
    ) -> None:
        """Go on to so many iterations in all, and do something after `every` of them."""
        while self.iteration < iterations:
            self.iterate()
            if then is not None and every and self.iteration % every == 0:
                then(self)

    def _swap(self) -> None:
        swaps = self.server.swaps()
        given = {number: self.devices[number].give_discriminator() for number in swaps.values()}
        for number, giver in swaps.items():
            self.devices[number].take_discriminator(given[giver])
            self._count(giver, up=given[giver].nbytes)
            self._count(number, down=given[giver].nbytes)

    def _count(self, number: int, *, down: int = 0, up: int = 0) -> None:
        self.traffic[number].down += down
        self.traffic[number].up += up


def _below(owner: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is kept under an owner's name, without it."""
    start = f"{owner}."
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


def swap_period(sizes: Sequence[int], batch: int, epochs: float) -> int:
    """m·E/b iterations, at least 1; 0, never, if E is 0."""
    if not epochs:
        return 0
    return max(1, round(sum(sizes) / len(sizes) * epochs / batch))
