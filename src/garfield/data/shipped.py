"""The sets that lie in the package: nothing to download."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np

from garfield.data.dataset import Dataset
from garfield.data.image_kinds import DIGITS, FASHION, ImageKind


def fashion_small() -> Dataset:
    """2,000 + 500 images of clothes, 28×28, from Fashion-MNIST."""
    return _shipped("fashion-small.npz", FASHION)


def digits() -> Dataset:
    """1,497 + 300 handwritten digits, 8×8, from the UCI repository by way of scikit-learn."""
    return _shipped("digits.npz", DIGITS)


def _shipped(file_name: str, kind: ImageKind) -> Dataset:
    with (files("garfield.data") / file_name).open("rb") as file:
        arrays: Any = np.load(file, allow_pickle=False)
        parts = {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    return kind.of(**parts)
