"""What is known of each kind of image before any file is opened."""

from __future__ import annotations

from dataclasses import dataclass

from garfield.core.errors import InputError
from garfield.data.dataset import Bytes, Dataset


@dataclass(frozen=True)
class ImageKind:
    """Images of one origin: what their classes are called, and how they are normalised."""

    image: tuple[int, int, int]
    """(channels, height, width)"""
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """The mean of pixels between 0 and 1 over the original training set, per channel."""
    std: tuple[float, ...]

    def of(self, x_train: Bytes, y_train: Bytes, x_test: Bytes, y_test: Bytes) -> Dataset:
        """These arrays as a data set of this kind."""
        made = Dataset(x_train, y_train, x_test, y_test, self.classes, self.mean, self.std)
        if made.image != self.image:
            raise InputError(f"Images should be {self.image}, got {made.image}.")
        return made


_NUMERALS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")

DIGITS = ImageKind((1, 8, 8), _NUMERALS, (0.3055,), (0.3760,))

MNIST = ImageKind((1, 28, 28), _NUMERALS, (0.1307,), (0.3081,))

FASHION = ImageKind(
    (1, 28, 28),
    (
        "t-shirt", "trouser", "pullover", "dress", "coat",
        "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    (0.2860,),
    (0.3530,),
)  # fmt: skip

CIFAR10 = ImageKind(
    (3, 32, 32),
    (
        "airplane", "automobile", "bird", "cat", "deer",
        "dog", "frog", "horse", "ship", "truck",
    ),
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
)  # fmt: skip
