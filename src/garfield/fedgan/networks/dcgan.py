"""DCGAN: the classic one for 64×64 images.

    discriminator   binary cross-entropy: real images are 1, generated ones 0
    generator       binary cross-entropy of its images against 1

Radford et al., ICLR 2016. Generator: z of 100 → transposed convolutions 4×4 to 8, 4, 2, 1 times
ngf maps, batch norm, ReLU → tanh. Discriminator: convolutions 4×4 of stride 2 to 1, 2, 4, 8 times
ndf maps, batch norm, leaky ReLU of 0.2, → one score. Scores are logits: the loss holds the
sigmoid, which is exact where a sigmoid by itself rounds to 0 or 1.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from garfield.core.errors import ConfigError
from garfield.fedgan.gan import Gan, Image, gan
from garfield.fedgan.networks.blocks import (
    LabelledNoise,
    Score,
    adam,
    channels_last,
    normed,
    started,
)

LATENT = 100
_LABEL = 50  # numbers that a label becomes beside the noise
_SIDE = 64


@gan("dcgan")
def dcgan(
    image: Image, *, classes: int | None = None, ngf: int = 64, ndf: int | None = None,
    group_norm: bool = False,
) -> Gan:  # fmt: skip
    """Deep convolutional GAN for images of 64×64."""
    channels, height, side = image
    if (height, side) != (_SIDE, _SIDE):
        raise ConfigError(
            f"dcgan makes images of {_SIDE}×{_SIDE}, not {height}×{side}. "
            "Scale your images, or choose lsgan."
        )
    ndf = ngf if ndf is None else ndf
    for name, value in (("ngf", ngf), ("ndf", ndf), ("channels", channels)):
        if value < 1:
            raise ConfigError(f"dcgan.{name} must be at least 1, got {value}.")
    return Gan(
        generator=lambda: started(DcganGenerator(channels, classes, ngf)),
        discriminator=lambda: started(DcganDiscriminator(channels, classes, ndf, group_norm)),
        latent=LATENT,
        generator_loss=generator_loss,
        discriminator_loss=discriminator_loss,
        optimizer=adam,
        conditional_on=classes,
    )


def generator_loss(fake: Tensor) -> Tensor:
    """Mean −log σ(D(G(z)))."""
    return functional.softplus(-fake).mean()


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Mean −log σ(D(x)) plus mean −log(1 − σ(D(G(z))))."""
    return functional.softplus(-real).mean() + functional.softplus(fake).mean()


class DcganGenerator(nn.Module):
    """(b, 100) [, labels] -> (b, channels, 64, 64) in [-1, 1]."""

    def __init__(self, channels: int, classes: int | None, ngf: int) -> None:
        super().__init__()
        self.labelled = None if classes is None else LabelledNoise(classes, _LABEL)
        inputs = LATENT if classes is None else LATENT + _LABEL
        layers: list[nn.Module] = [nn.ConvTranspose2d(inputs, 8 * ngf, 4, bias=False)]
        for maps in (8 * ngf, 4 * ngf, 2 * ngf):
            doubled = nn.ConvTranspose2d(maps, maps // 2, 4, stride=2, padding=1, bias=False)
            layers += [nn.BatchNorm2d(maps), nn.ReLU(), doubled]
        last = nn.ConvTranspose2d(ngf, channels, 4, stride=2, padding=1, bias=False)
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(ngf), nn.ReLU(), last, nn.Tanh())

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        if self.labelled is not None:
            z = self.labelled(z, labels)
        images: Tensor = self.layers(channels_last(z[:, :, None, None]))
        return images


class DcganDiscriminator(nn.Module):
    """(b, channels, 64, 64) [, labels] -> (b,) scores."""

    def __init__(
        self, channels: int, classes: int | None, ndf: int, group_norm: bool = False
    ) -> None:
        super().__init__()
        first = nn.Conv2d(channels, ndf, 4, stride=2, padding=1, bias=False)
        layers: list[nn.Module] = [first, nn.LeakyReLU(0.2)]
        for maps in (ndf, 2 * ndf, 4 * ndf):
            halved = nn.Conv2d(maps, 2 * maps, 4, stride=2, padding=1, bias=False)
            layers += [halved, normed(2 * maps, group_norm=group_norm), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.score = Score(8 * ndf * 4 * 4, classes)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        score: Tensor = self.score(self.layers(channels_last(images)), labels)
        return score
