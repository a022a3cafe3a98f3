"""How much a classifier learns from generated images alone: its accuracy on real ones.

Generated images that are right, and as varied as the data, teach as much as the data would.
Shmelkov, Schmid and Alahari, ECCV 2018 (GAN-train); Ravuri and Vinyals, NeurIPS 2019 (CAS). A
generator that knows one class reaches that class's share; so does one whose images are noise.

The pupil is a `SmallCnn`, drawn and trained afresh. Its labels are what the generator was asked
for, if it is conditional; else a frozen classifier's opinion of each image, and then the accuracy
cannot pass that classifier's: `LabelsBy` says which.
"""

from __future__ import annotations

from enum import Enum

import torch

from garfield.core.errors import InputError
from garfield.fedgan.judging.small_cnn import accuracy, fit, fresh

EPOCHS = 4
_SMALLEST = 8  # pixels a side that three halvings leave something of


class LabelsBy(Enum):
    """Who says what class a generated image is of."""

    GENERATOR = "the generator"
    CLASSIFIER = "a frozen classifier"


def accuracy_trained_on(
    generated: tuple[torch.Tensor, torch.Tensor],
    real: tuple[torch.Tensor, torch.Tensor],
    *,
    classes: int,
    seed: int,
    epochs: int = EPOCHS,
) -> float:
    """Train on the one, test on the other: each images as bytes (n, c, h, w), and classes (n,)."""
    pixels, labels = generated
    _, channels, height, width = pixels.shape
    if min(height, width) < _SMALLEST:
        raise InputError(
            f"Images of {height}×{width} are too small to train a classifier on: "
            f"at least {_SMALLEST}×{_SMALLEST} are needed."
        )
    pupil = fresh(classes, (channels, height, width), seed)
    fit(pupil, pixels, labels, epochs=epochs, seed=seed)
    return accuracy(pupil, *real)
