"""Build fashion-small.npz: ``python -m tools.make_subset IDX_DIR OUT``.

IDX_DIR holds the four original files, train-images-idx3-ubyte.gz and so on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import InputError
from garfield.data.dataset import Bytes
from garfield.data.idx import IMAGES, LABELS, read_idx

SEED = 0
TRAIN_PER_CLASS, TEST_PER_CLASS = 200, 50


def stratified(labels: Bytes, per_class: int, rng: np.random.Generator) -> Any:
    """Shuffled positions of `per_class` examples of every class."""
    picked = []
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        if len(of_class) < per_class:
            raise InputError(f"Class {label} has {len(of_class)} examples, {per_class} are wanted.")
        picked.append(rng.choice(of_class, per_class, replace=False))
    return rng.permutation(np.concatenate(picked))


def make_subset(
    idx_dir: Path, train_per_class: int = TRAIN_PER_CLASS, test_per_class: int = TEST_PER_CLASS
) -> dict[str, Bytes]:
    """The arrays of the subset, by the names they are stored under."""
    rng = np.random.default_rng(SEED)
    arrays = {}
    for part, prefix, per_class in (
        ("train", "train", train_per_class),
        ("test", "t10k", test_per_class),
    ):
        images = read_idx(idx_dir / f"{prefix}-images-idx3-ubyte.gz", IMAGES)
        labels = read_idx(idx_dir / f"{prefix}-labels-idx1-ubyte.gz", LABELS)
        if len(images) != len(labels):
            raise InputError(f"{prefix}: {len(images)} images but {len(labels)} labels.")
        index = stratified(labels, per_class, rng)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = images[index], labels[index]
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("idx_dir", type=Path)
    parser.add_argument("out", type=Path)
    settings = parser.parse_args()
    arrays: dict[str, Any] = make_subset(settings.idx_dir)
    np.savez_compressed(settings.out, **arrays)


if __name__ == "__main__":
    main()
