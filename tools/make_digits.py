"""Build digits.npz: ``python -m tools.make_digits OUT``, where scikit-learn is installed.

Its 1,797 images count ink from 0 to 16; here 0 to 255, rounded. 30 of each class are
drawn at random with seed 0 for the test set, all others are for training.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from garfield.data.dataset import Bytes
from tools.make_subset import stratified

SEED = 0
TEST_PER_CLASS = 30


def split_digits(ink: Any, labels: Any) -> dict[str, Bytes]:
    """The arrays of the set, by the names they are stored under."""
    rng = np.random.default_rng(SEED)
    pixels = np.rint(np.asarray(ink) * (255 / 16)).astype(np.uint8)
    labels = np.asarray(labels, dtype=np.uint8)
    test = stratified(labels, TEST_PER_CLASS, rng)
    train = rng.permutation(np.setdiff1d(np.arange(len(labels)), test))
    return {
        "x_train": pixels[train],
        "y_train": labels[train],
        "x_test": pixels[test],
        "y_test": labels[test],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    settings = parser.parse_args()
    source = import_module("sklearn.datasets").load_digits()
    arrays: dict[str, Any] = split_digits(source.images, source.target)
    np.savez_compressed(settings.out, **arrays)


if __name__ == "__main__":
    main()
