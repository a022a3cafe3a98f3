"""ByzFL's own runner of grids, in its own environment: python -m benchmarks.byzfl_grid DIR JOBS.

DIR holds the `config.json` that it reads, and images in torchvision's place for MNIST; it leaves
its results there. Nothing of it is changed, save that the model is ours by its function, and that
seaborn and matplotlib, which it imports and does not call here, are empty.
"""

from __future__ import annotations

import os
import sys
import types
from importlib import import_module
from typing import Any

from benchmarks.byzfl_simulation import _define_what_torchvision_lacks, _mnist_cnn

DRAWING = ("matplotlib", "matplotlib.pyplot", "seaborn")


def main(directory: str, jobs: int) -> None:
    """Run the grid that the directory's config.json describes, so many cells at once."""
    for name in DRAWING:
        sys.modules[name] = types.ModuleType(name)
    _kept: Any = _define_what_torchvision_lacks()  # as long as it is, so are the operators
    os.chdir(directory)
    models = import_module("byzfl.fed_framework.models")
    models.mnist_cnn = _mnist_cnn  # type: ignore[attr-defined]
    import_module("byzfl.benchmark.benchmark").run_benchmark(jobs)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
