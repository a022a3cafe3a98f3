"""What a user brings to federated training: two networks, their losses and optimizers.

    mine = Gan(
        generator=MyGenerator,
        discriminator=MyDiscriminator,
        latent=64,
        generator_loss=lambda fake: -fake.mean(),
        discriminator_loss=lambda real, fake: fake.mean() - real.mean(),
        optimizer=lambda parameters: torch.optim.RMSprop(parameters, lr=5e-5),
    )

Nothing else is asked of the modules: any layer, any buffer, any dtype of parameters. Whoever
wants to be found by name registers a function from the shape of images to a `Gan` with `@gan`;
`garfield.fedgan.networks` holds ours, and `gan_for`, which reads such names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from garfield.core.errors import ConfigError, InputError
from garfield.core.registry import Parameters, Registry

Image: TypeAlias = tuple[int, int, int]
"""(channels, height, width)"""


@dataclass(frozen=True)
class Gan:
    """What a user brings: two networks, their losses and optimizers."""

    generator: Callable[[], nn.Module]
    """Makes a network (b, latent) [, labels (b,)] -> images (b, c, h, w) in [-1, 1]."""
    discriminator: Callable[[], nn.Module]
    """Makes a network images [, labels (b,)] -> scores (b,) or (b, 1), higher for real ones."""
    latent: int
    """Numbers that the generator makes an image of, drawn from N(0, 1)."""
    generator_loss: Callable[[Tensor], Tensor]
    """(scores of generated images) -> what the generator minimises, a scalar."""
    discriminator_loss: Callable[[Tensor, Tensor], Tensor]
    """(scores of real images, scores of generated ones) -> what the discriminator minimises."""
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    """Makes the optimizer of one network's parameters; called for each of the two."""
    conditional_on: int | None = None
    """Number of classes, if both networks are given labels too; None: they are not."""

    def __post_init__(self) -> None:
        if self.latent < 1:
            raise ConfigError(f"Gan.latent must be at least 1, got {self.latent}.")
        if self.conditional_on is not None and self.conditional_on < 1:
            raise ConfigError(
                f"Gan.conditional_on must be a number of classes, got {self.conditional_on}. "
                "Leave it None for networks that take no labels."
            )

    def build(self, seed: int) -> tuple[nn.Module, nn.Module]:
        """Generator and discriminator with weights that depend on the seed alone.

        Torch's own random state stays as it is.
        """
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            return self.generator(), self.discriminator()

    def optimizers(
        self, networks: tuple[nn.Module, nn.Module]
    ) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """An optimizer for each of the two."""
        first, second = networks
        return self.optimizer(first.parameters()), self.optimizer(second.parameters())

    def noise(self, count: int, rng: torch.Generator | None = None) -> Tensor:
        """(count, latent) numbers from N(0, 1); without a generator, from torch's own state."""
        return torch.randn(count, self.latent, generator=rng)

    def generate(
        self, generator: nn.Module, z: Tensor, labels: Tensor | None = None, batch: int = 500
    ) -> Tensor:
        """Images of that noise, made in evaluation mode: batch norm by what was learned.

        A conditional generator needs labels, one per row. The module's mode is put back.
        """
        if (labels is None) != (self.conditional_on is None):
            needs = "needs labels" if labels is None else "takes no labels"
            raise InputError(f"This generator {needs}: conditional_on is {self.conditional_on}.")
        training = generator.training
        generator.eval()
        try:
            with torch.inference_mode():
                return torch.cat(
                    [
                        generator(z[at : at + batch])
                        if labels is None
                        else generator(z[at : at + batch], labels[at : at + batch])
                        for at in range(0, len(z), batch)
                    ]
                )
        finally:
            generator.train(training)


@dataclass(frozen=True)
class GanFamily:
    """Gans of one architecture: one for each shape of images, with parameters."""

    name: str
    function: Callable[..., Gan]
    """``(image, *, classes, …) -> Gan``; ConfigError if it cannot make such images."""
    about: str
    """One line for listings."""

    def __call__(self, image: Image, *, classes: int | None = None, **params: object) -> Gan:
        """The Gan for images of that shape; `classes` for a conditional one."""
        Parameters(self.name, self.function, frozenset({"classes"})).check(params)
        return self.function(image, classes=classes, **params)


GANS: Registry[GanFamily] = Registry("a GAN")


def gan(name: str) -> Callable[[Callable[..., Gan]], GanFamily]:
    """Register a function ``(image, *, classes, …) -> Gan`` under a name.

    Its parameters after `classes` can be set by name: ``--gan "lsgan(width=0.25)"``.
    """

    def register(function: Callable[..., Gan]) -> GanFamily:
        about = (function.__doc__ or "").strip().partition("\n")[0]
        return GANS.add(name, GanFamily(name, function, about))

    return register
