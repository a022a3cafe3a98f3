"""The small networks that come with the library, and what each file must be.

Trained on all 60,000 training images, with seed 0, by

    python -m tools.train_judges DATA_DIR src/garfield/fedgan/judging

and never changed: a distance is comparable only with distances over the same network. So each
file's SHA-256 is checked whenever it is loaded, and is part of the key of whatever is cached.
They hold weights alone, as float16, 197 KB each; no image of MNIST or Fashion-MNIST is shipped.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from garfield.core.errors import InputError, MissingDependency
from garfield.fedgan.judging.small_cnn import SmallCnn, without_weights


@dataclass(frozen=True)
class ShippedNetwork:
    """A file of weights in the package."""

    file: str
    sha256: str
    accuracy: float
    """The share of the 10,000 test images whose class it names, as measured when it was made."""
    image: tuple[int, int, int] = (1, 28, 28)
    classes: int = 10


SHIPPED = {
    "mnist": ShippedNetwork(
        "mnist.safetensors",
        "1dd85f64253ffde117690ba0b45f759a637ae99804a6ba1652ac4383b24c7054",
        0.9935,
    ),
    "fashion": ShippedNetwork(
        "fashion.safetensors",
        "2cdb38d2cd902d74db7e633b5d486cb9203859954e674456b5578cbd8893df76",
        0.9129,
    ),
}
"""By the data set on which they were trained."""

TRAINED_ON = {"mnist": "mnist", "fashion": "fashion", "fashion-small": "fashion"}
"""Which of them judges images of which data set."""


def load_shipped(name: str) -> SmallCnn:
    """The network trained on that data set, frozen; InputError if its file was altered."""
    network = SHIPPED[name]
    content = (files("garfield.fedgan.judging") / network.file).read_bytes()
    return unpacked(network, content)


def unpacked(network: ShippedNetwork, content: bytes) -> SmallCnn:
    """A network from the bytes of its file, once their hash is the known one."""
    try:
        from safetensors.torch import load
    except ImportError:
        raise MissingDependency(
            "The networks that judge images are stored as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[fedgan]'"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != network.sha256:
        raise InputError(
            f"{network.file} was altered: its SHA-256 is {found[:16]}… instead of "
            f"{network.sha256[:16]}…, so distances over it would mean nothing. "
            "Install garfield again."
        )
    model = without_weights(network.classes, network.image)
    weights = {key: value.float() for key, value in load(content).items()}
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)
