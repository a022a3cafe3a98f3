"""The format of MNIST and Fashion-MNIST, plain or gzipped.

A magic number (0x803 for images, 0x801 for labels), one big-endian 32-bit size per
dimension, then bytes.
"""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

from garfield.core.errors import InputError
from garfield.data.dataset import Bytes

IMAGES, LABELS = 0x803, 0x801


def read_idx(path: Path, magic: int) -> Bytes:
    """The array in an idx file, whose kind and size are checked; read-only."""
    content = _content(path)
    found = int.from_bytes(content[:4], "big")
    if found != magic:
        raise InputError(
            f"{path} starts with {found:#x}, an idx file of this kind with {magic:#x}."
        )
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise InputError(f"{path} ends after {len(content)} bytes, within its header.")
    shape = [int(size) for size in np.frombuffer(content[4:header], dtype=">u4")]
    if len(content) - header != prod(shape):
        raise InputError(f"{path} should hold {prod(shape)} bytes, has {len(content) - header}.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{path} is not there.")
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as problem:
        raise InputError(f"{path} is damaged ({problem}). Get it again.") from None
