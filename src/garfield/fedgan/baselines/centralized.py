"""The same GAN trained on all the data at one place: what distribution is measured against.

One iteration: a step of the discriminator on b real and b generated images, then a step of the
generator on the same noise. A conditional generator is asked for the classes of the real batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from garfield.core.errors import ConfigError, DivergedError
from garfield.fedgan.baselines.randomness import LocalImages, drawn_from
from garfield.fedgan.baselines.saved_training import restore_training, saved_training
from garfield.fedgan.gan import Gan


class CentralizedTraining:
    """Trains one generator against one discriminator."""

    def __init__(
        self, gan: Gan, images: Tensor, labels: Tensor, *, batch: int = 50, seed: int = 0
    ) -> None:
        """Images (n, c, h, w) in [-1, 1] and labels (n,); what is drawn depends on the seed."""
        require_labels(gan, labels)
        self.gan, self.seed, self.iteration = gan, seed, 0
        self.data = LocalImages(images, labels, batch, seed)
        self.generator, self.discriminator = gan.build(seed)
        self._generator_steps = gan.optimizer(self.generator.parameters())
        self._discriminator_steps = gan.optimizer(self.discriminator.parameters())

    def iterate(self) -> None:
        """One iteration; DivergedError if a loss is not finite any more."""
        real, labels = self.data.batch(self.iteration)
        asked = labels if self.gan.conditional_on is not None else None
        with drawn_from(self.seed, self.iteration):
            fake = called(self.generator, self.gan.noise(len(real)), asked)
            self._discriminator_steps.zero_grad()
            loss = discriminator_loss(self.gan, self.discriminator, real, fake.detach(), asked)
            loss.backward()  # type: ignore[no-untyped-call]
            self._discriminator_steps.step()
            self._generator_steps.zero_grad()
            scores = called(self.discriminator, fake, asked)
            fooling = self.gan.generator_loss(scores)
            # into the discriminator too, which forgets it at its next step
            fooling.backward()  # type: ignore[no-untyped-call]
            self._generator_steps.step()
        if not (loss.isfinite() and fooling.isfinite()):
            raise DivergedError(
                f"Losses are {loss.item():.3g} and {fooling.item():.3g} at iteration "
                f"{self.iteration}: lower the learning rate."
            )
        self.iteration += 1

    def state(self) -> dict[str, Tensor]:
        """All that it takes to go on from here, in another process."""
        return {
            "iteration": torch.tensor(self.iteration),
            **saved_training("generator", self.generator, self._generator_steps),
            **saved_training("discriminator", self.discriminator, self._discriminator_steps),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        restore_training("generator", self.generator, self._generator_steps, state)
        restore_training("discriminator", self.discriminator, self._discriminator_steps, state)
        self.iteration = int(state["iteration"])

    def train(
        self,
        iterations: int,
        *,
        every: int = 0,
        then: Callable[[CentralizedTraining], None] | None = None,
    ) -> None:
        """Go on to so many iterations in all, and do something after `every` of them."""
        while self.iteration < iterations:
            self.iterate()
            if then is not None and every and self.iteration % every == 0:
                then(self)


def called(network: nn.Module, inputs: Tensor, labels: Tensor | None) -> Tensor:
    """What a network makes of noise or images, with labels if there are any."""
    made: Tensor = network(inputs) if labels is None else network(inputs, labels)
    return made


def discriminator_loss(
    gan: Gan, discriminator: nn.Module, real: Tensor, fake: Tensor, labels: Tensor | None
) -> Tensor:
    """What the discriminator minimises, both halves with the same labels."""
    return gan.discriminator_loss(
        called(discriminator, real, labels), called(discriminator, fake, labels)
    )


def require_labels(gan: Gan, labels: Tensor) -> None:
    """ConfigError for labels beyond those that a conditional GAN knows."""
    if gan.conditional_on is None or not len(labels):
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= gan.conditional_on:
        raise ConfigError(
            f"The GAN is conditional on {gan.conditional_on} classes, and labels run from {low} "
            f"to {high}."
        )
