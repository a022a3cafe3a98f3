"""MD-GAN: one generator at the server, a discriminator on every device.

    server   draws k batches of b images, X⁽⁰⁾ … X⁽ᵏ⁻¹⁾, and sends device n the two batches
             X_d = X⁽ⁿ ᵐᵒᵈ ᵏ⁾ and X_g = X⁽⁽ⁿ⁺¹⁾ ᵐᵒᵈ ᵏ⁾: one and the same when k is 1
    device   takes L steps of its discriminator on X_d against b of its own images, then sends the
             error feedback F_n = { ∂ loss(D_n(X_g)) / ∂x : x in X_g }, as large as X_g
    server   Δw = 1/N Σ_n Σ_i F_n,i · ∂x_i/∂w, and one step of its optimizer

and every m·E/b iterations, m the images of a device, discriminators change places, so that none
learns one device's images by heart. Hardy, Le Merrer and Sericola, IPDPS 2019, Algorithm 1, with
k = ⌊log N⌋, at least 1.

Two things are ours. Discriminators change places by way of the server, as devices here talk to
nobody else, along one random cycle, so that each device gets another's; what an optimizer
remembers stays on its device, since the paper moves parameters alone. And a conditional generator
is supported: each batch carries the classes it was asked for, as floats behind its pixels.

Server and device hand each other flat float32 vectors whose lengths both know beforehand
(`Messages`), which is what the library's transport carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from garfield.adapters.contract import FlatVector
from garfield.adapters.torch_adapter import TorchAdapter
from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.baselines.centralized import called, discriminator_loss, require_labels
from garfield.fedgan.baselines.randomness import LocalImages, drawn_from, mixed
from garfield.fedgan.baselines.saved_training import restore_training, saved_training
from garfield.fedgan.gan import Gan, Image

_SERVER = 0  # its place in what is drawn; devices count from 1
_SWAPS = 1 << 20  # more than there are devices


def batches_drawn(devices: int) -> int:
    """k = max(1, ⌊log N⌋), natural."""
    return max(1, math.floor(math.log(devices)))


@dataclass(frozen=True)
class Messages:
    """What the vectors between server and device hold."""

    image: Image
    batch: int
    k: int
    """Batches that the server draws; one travels once, of more there are two per device."""
    conditional: bool = False

    @property
    def feedback(self) -> int:
        """Numbers in a feedback: one for each of a batch's pixels."""
        return self.batch * math.prod(self.image)

    @property
    def batches(self) -> int:
        """Numbers in what a device is sent."""
        return min(self.k, 2) * self.one_batch

    @property
    def one_batch(self) -> int:
        """Numbers in one batch of generated images, with its classes if there are any."""
        return self.feedback + (self.batch if self.conditional else 0)

    def chosen(self, device: int) -> list[int]:
        """Which of the k batches this device, from 0, learns from and which one it judges."""
        return [0] if self.k == 1 else [device % self.k, (device + 1) % self.k]

    def pack(self, images: Tensor, labels: Tensor | None) -> FlatVector:
        """One batch: its images, then its classes."""
        parts = [images] if labels is None else [images, labels]
        return torch.cat([part.detach().float().reshape(-1) for part in parts]).numpy()

    def unpack(self, vector: FlatVector) -> list[tuple[Tensor, Tensor | None]]:
        """What `pack` was given for each batch; InputError for a vector of another length."""
        _require_length(vector, self.batches, "batches of generated images")
        pairs: list[tuple[Tensor, Tensor | None]] = []
        for part in torch.tensor(vector).chunk(min(self.k, 2)):
            images = part[: self.feedback].reshape(self.batch, *self.image)
            labels = part[self.feedback :].long() if self.conditional else None
            pairs.append((images, labels))
        return pairs


class MdGanServer:
    """Owns the generator. An iteration: `draw`, `batches_for` and `take_feedback` of each device,
    `update`, then `swaps`."""

    def __init__(
        self,
        gan: Gan,
        image: Image,
        devices: int,
        *,
        batch: int = 50,
        k: int | None = None,
        swap_every: int = 0,
        seed: int = 0,
    ) -> None:
        """`swap_every` so many iterations, never if 0; `k` is max(1, ⌊log N⌋) by default."""
        if devices < 1:
            raise ConfigError(f"MD-GAN needs at least 1 device, got {devices}.")
        k = batches_drawn(devices) if k is None else k
        if not 1 <= k <= devices:
            raise ConfigError(f"MD-GAN's k must be within 1..{devices} (devices), got {k}.")
        self.gan, self.devices, self.seed = gan, devices, seed
        self.swap_every = swap_every if devices > 1 else 0
        """Iterations between two swaps; 0: never."""
        self.messages = Messages(image, batch, k, gan.conditional_on is not None)
        self.iteration = 0
        self.generator, discriminator = gan.build(seed)
        flat = TorchAdapter(discriminator)
        self.discriminator_length = flat.size + flat.tail
        """Numbers in a discriminator that changes places."""
        self._optimizer = gan.optimizer(self.generator.parameters())
        self._drawn: list[tuple[Tensor, Tensor | None]] = []
        self._feedback: dict[int, Tensor] = {}

    def draw(self) -> None:
        """Draw this iteration's k batches, and keep how they came about."""
        batch, classes = self.messages.batch, self.gan.conditional_on
        self._drawn, self._feedback = [], {}
        with drawn_from(self.seed, _SERVER, self.iteration):
            for _ in range(self.messages.k):
                z = self.gan.noise(batch)
                labels = None if classes is None else torch.randint(classes, (batch,))
                self._drawn.append((called(self.generator, z, labels), labels))

    def batch(self, number: int) -> FlatVector:
        """One of the k batches, from 0, as it travels."""
        return self.messages.pack(*self._drawn[number])

    def batches_for(self, device: int) -> FlatVector:
        """X_d and X_g of this device, from 0; X alone if there is but one batch."""
        return np.concatenate([self.batch(number) for number in self.messages.chosen(device)])

    def take_feedback(self, device: int, feedback: FlatVector) -> None:
        """What this device says about its X_g; InputError unless all of it is a number."""
        _require_length(feedback, self.messages.feedback, f"feedback of device {device}")
        if device in self._feedback or not 0 <= device < self.devices:
            raise InputError(f"No feedback of device {device} is awaited in this iteration.")
        taken = torch.tensor(feedback)
        if not taken.isfinite().all():
            raise InputError(
                f"The feedback of device {device} is not finite at iteration {self.iteration}: its "
                "discriminator has diverged, or it lies."
            )
        self._feedback[device] = taken.reshape(self.messages.batch, *self.messages.image)

    def update(self) -> None:
        """Step by the mean of the feedback that came: of every device, if none is late."""
        if not self._feedback:
            raise InputError(f"No device gave feedback at iteration {self.iteration}.")
        self._optimizer.zero_grad()
        heard = len(self._feedback)
        for number, (images, _) in enumerate(self._drawn):
            about_it = [
                given for device, given in sorted(self._feedback.items())
                if self.messages.chosen(device)[-1] == number
            ]  # fmt: skip
            if about_it:
                torch.autograd.backward(images, torch.stack(about_it).sum(0) / heard)
        self._optimizer.step()
        self._drawn, self._feedback = [], {}
        self.iteration += 1

    def state(self) -> dict[str, Tensor]:
        """All that it takes to go on after the last update, in another process."""
        return {
            "iteration": torch.tensor(self.iteration),
            **saved_training("generator", self.generator, self._optimizer),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        restore_training("generator", self.generator, self._optimizer, state)
        self.iteration = int(state["iteration"])

    def swaps(self) -> Mapping[int, int]:
        """Whose discriminator each device gets now; nobody's, empty, most of the time."""
        if not self.swap_every or self.iteration % self.swap_every:
            return {}
        rng = np.random.default_rng(mixed(self.seed, _SWAPS, self.iteration))
        order = rng.permutation(self.devices).tolist()
        return dict(zip(order, [*order[1:], order[0]], strict=True))  # one cycle: nobody's own


class MdGanDevice:
    """Owns a discriminator and images that stay here."""

    def __init__(
        self,
        gan: Gan,
        images: Tensor,
        labels: Tensor,
        messages: Messages,
        *,
        number: int,
        discriminator_steps: int = 1,
        seed: int = 0,
    ) -> None:
        """Device `number`, from 0, with its images (n, c, h, w) in [-1, 1] and labels (n,)."""
        if discriminator_steps < 1:
            raise ConfigError(
                f"A device takes at least 1 discriminator step, got {discriminator_steps}."
            )
        require_labels(gan, labels)
        self.gan, self.messages, self.number = gan, messages, number
        self.seed, self.steps, self.iteration = seed, discriminator_steps, 0
        self.data = LocalImages(images, labels, messages.batch, seed, number + 1)
        if self.data.image != messages.image:
            raise InputError(
                f"Device {number} has images of {self.data.image}, others of {messages.image}."
            )
        _, self.discriminator = gan.build(mixed(seed, number + 1))
        self._flat = TorchAdapter(self.discriminator)
        self._optimizer = gan.optimizer(self.discriminator.parameters())

    def feedback(self, batches: FlatVector) -> FlatVector:
        """Learn from X_d, and say how X_g should change."""
        pairs = self.messages.unpack(batches)
        (fake, asked), (judged, judged_as) = pairs[0], pairs[-1]
        real, labels = self.data.batch(self.iteration)
        with drawn_from(self.seed, self.number + 1, self.iteration):
            for _ in range(self.steps):
                self._optimizer.zero_grad()
                torch.autograd.backward(self._loss(real, labels, fake, asked))
                self._optimizer.step()
            judged = judged.requires_grad_()
            scores = called(self.discriminator, judged, judged_as)
            (wanted,) = torch.autograd.grad(self.gan.generator_loss(scores), judged)
        self.iteration += 1
        flat: FlatVector = wanted.reshape(-1).numpy()
        return flat

    def _loss(self, real: Tensor, labels: Tensor, fake: Tensor, asked: Tensor | None) -> Tensor:
        if asked is None:
            return discriminator_loss(self.gan, self.discriminator, real, fake, None)
        return self.gan.discriminator_loss(
            self.discriminator(real, labels), self.discriminator(fake, asked)
        )

    def state(self) -> dict[str, Tensor]:
        """All that it takes to go on after the last feedback, in another process."""
        return {
            "iteration": torch.tensor(self.iteration),
            **saved_training("discriminator", self.discriminator, self._optimizer),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        restore_training("discriminator", self.discriminator, self._optimizer, state)
        self.iteration = int(state["iteration"])

    @property
    def discriminator_length(self) -> int:
        """Numbers in its discriminator, what batch norm has learned included."""
        return self._flat.size + self._flat.tail

    def give_discriminator(self) -> FlatVector:
        """A copy, for another device."""
        vector = np.empty(self.discriminator_length, np.float32)
        self._flat.read(vector)
        return vector

    def take_discriminator(self, vector: FlatVector) -> None:
        """Go on with another device's; InputError, and nothing changed, unless it is one."""
        _require_length(vector, self.discriminator_length, "discriminator")
        if not np.isfinite(vector).all():
            raise InputError("A discriminator that is not finite is not taken over.")
        self._flat.write(vector)


def _require_length(vector: FlatVector, wanted: int, what: str) -> None:
    if vector.shape != (wanted,) or vector.dtype != np.float32:
        raise InputError(
            f"The {what} should have {wanted} float32 numbers, got {vector.dtype} {vector.shape}."
        )
