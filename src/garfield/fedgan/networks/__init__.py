"""Networks that are ready to train, by name.

| name  | images                                   | parameters                              |
|-------|------------------------------------------|-----------------------------------------|
| lsgan | grey or colour, 28×28, 32×32, up to 64   | width: of the generator, 1 is the full  |
| dcgan | grey or colour, 64×64                    | ngf, ndf: channels next to the image    |

Both have conditional variants: given a number of classes, their networks take labels. With
`group_norm=True` the discriminator has group norm instead of batch norm: training it with
differential privacy needs that.

On a CPU convolutions work on images with their channels last, so modules turn their input
that way; weights stay as they are, which is what a state that travels needs.
"""

from __future__ import annotations

from garfield.core.naming import parse_call
from garfield.fedgan.gan import GANS, Gan, Image
from garfield.fedgan.networks.dcgan import dcgan
from garfield.fedgan.networks.lsgan import lsgan

__all__ = ["dcgan", "gan_for", "lsgan"]


def gan_for(text: str, image: Image, *, classes: int | None = None) -> Gan:
    """The Gan that this text names, for images of that shape: "lsgan", "dcgan(ngf=16)".

    With `classes`, both networks are conditional on a label below that number.
    """
    name, params = parse_call(text, example="lsgan(width=0.25)")
    return GANS[name](image, classes=classes, **params)
