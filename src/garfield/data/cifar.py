"""CIFAR-10 as its authors' binary version, and as arrays in one .npz.

The binary version is five training batches and one for testing; each image is one
byte for the label, then 1,024 bytes of red, of green and of blue. The authors' Python
version is pickled, and nothing is unpickled here.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from garfield.core.errors import InputError
from garfield.data.dataset import Bytes

TRAIN_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_BATCH = "test_batch.bin"

_RECORD = 1 + 3 * 32 * 32
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def read_batches(folder: Path) -> list[Bytes]:
    """Images and labels for training, then those for testing."""
    return [
        *_batches([folder / name for name in TRAIN_BATCHES]),
        *_batches([folder / TEST_BATCH]),
    ]


def _batches(paths: Sequence[Path]) -> tuple[Bytes, Bytes]:
    """(count, 32, 32, 3) and (count,)"""
    records = np.concatenate([_records(path) for path in paths])
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].copy()


def _records(path: Path) -> Bytes:
    content = np.fromfile(path, dtype=np.uint8)
    if not len(content) or len(content) % _RECORD:
        raise InputError(
            f"{path} has {len(content)} bytes, not a multiple of {_RECORD}. Get it again."
        )
    return content.reshape(-1, _RECORD)


def read_arrays(path: Path) -> list[Bytes]:
    """The arrays x_train, y_train, x_test, y_test of an .npz, images as (count, 32, 32, 3)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in _ARRAYS]
    except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as problem:
        raise InputError(
            f"{path} does not hold the plain arrays {', '.join(_ARRAYS)}: {problem}"
        ) from None
