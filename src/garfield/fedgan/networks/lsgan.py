"""LSGAN for small images: scores are pulled to 1 for real ones and to 0 for generated ones.

    discriminator   ½ mean (D(x) − 1)² + ½ mean D(G(z))²
    generator       mean (D(G(z)) − 1)²

Mao et al., ICCV 2017. Generator: z of 100 → a dense layer to 128 maps of a quarter of the side
→ twice (upsample by 2, convolution 3×3, batch norm, leaky ReLU) to 128 and 64 maps → tanh.
Discriminator: four convolutions 3×3 of stride 2 with 16, 32, 64, 128 maps, leaky ReLU of 0.2,
dropout of a quarter of the maps, → one score. Images of 28×28 are made as they are, from
7×7 maps; nothing is padded to 32.
"""

from __future__ import annotations

from torch import Tensor, nn

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
_SMALLEST, _LARGEST = 16, 64


@gan("lsgan")
def lsgan(
    image: Image, *, classes: int | None = None, width: float = 1.0, group_norm: bool = False
) -> Gan:
    """Least-squares GAN for images of 16×16 to 64×64."""
    channels, height, side = image
    if height != side or side % 4 or not _SMALLEST <= side <= _LARGEST:
        raise ConfigError(
            f"lsgan makes square images whose side is a multiple of 4 from {_SMALLEST} to "
            f"{_LARGEST}, not {height}×{side}. Scale or pad your images."
        )
    if channels < 1:
        raise ConfigError(f"lsgan needs images of at least 1 channel, got {channels}.")
    if not 1 / 16 <= width <= 4:
        raise ConfigError(f"lsgan.width must be within 1/16..4, got {width}.")
    return Gan(
        generator=lambda: started(LsganGenerator(channels, side, classes, width)),
        discriminator=lambda: started(LsganDiscriminator(channels, side, classes, group_norm)),
        latent=LATENT,
        generator_loss=generator_loss,
        discriminator_loss=discriminator_loss,
        optimizer=adam,
        conditional_on=classes,
    )


def generator_loss(fake: Tensor) -> Tensor:
    """Mean (D(G(z)) − 1)²."""
    return (fake - 1).square().mean()


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """½ mean (D(x) − 1)² + ½ mean D(G(z))²."""
    return ((real - 1).square().mean() + fake.square().mean()) / 2


class LsganGenerator(nn.Module):
    """(b, 100) [, labels] -> (b, channels, side, side) in [-1, 1]."""

    def __init__(self, channels: int, side: int, classes: int | None, width: float) -> None:
        super().__init__()
        wide, narrow = max(1, round(128 * width)), max(1, round(64 * width))
        self.maps = (wide, side // 4, side // 4)
        self.labelled = None if classes is None else LabelledNoise(classes, _LABEL)
        inputs = LATENT if classes is None else LATENT + _LABEL
        self.dense = nn.Linear(inputs, wide * (side // 4) ** 2)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(wide),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, narrow, 3, padding=1), nn.BatchNorm2d(narrow), nn.LeakyReLU(0.2),
            nn.Conv2d(narrow, channels, 3, padding=1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        if self.labelled is not None:
            z = self.labelled(z, labels)
        images: Tensor = self.layers(channels_last(self.dense(z).unflatten(1, self.maps)))
        return images


class LsganDiscriminator(nn.Module):
    """(b, channels, side, side) [, labels] -> (b,) scores."""

    def __init__(
        self, channels: int, side: int, classes: int | None, group_norm: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_halved(channels, 16),
            *_halved(16, 32, normed(32, group_norm=group_norm)),
            *_halved(32, 64, normed(64, group_norm=group_norm)),
            *_halved(64, 128, normed(128, group_norm=group_norm)),
            nn.Flatten(),
        )
        self.score = Score(128 * (-(-side // 16)) ** 2, classes)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        score: Tensor = self.score(self.layers(channels_last(images)), labels)
        return score


def _halved(channels: int, maps: int, *norm: nn.Module) -> list[nn.Module]:
    """Half the side, rounded up."""
    convolution = nn.Conv2d(channels, maps, 3, stride=2, padding=1)
    return [convolution, *norm, nn.LeakyReLU(0.2), nn.Dropout2d(0.25)]
