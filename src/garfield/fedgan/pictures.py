"""Generated images as pictures: one file each, or many in a grid."""

from __future__ import annotations

from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from garfield.core.errors import MissingDependency
from garfield.core.files import replacing

_GAP = 2  # pixels between two images of a grid


def write_grid(images: Tensor, path: Path, columns: int | None = None) -> None:
    """Many images (n, c, h, w) in [-1, 1] as one picture, row by row."""
    count, channels, height, width = images.shape
    columns = ceil(sqrt(count)) if columns is None else columns
    rows = ceil(count / columns)
    sheet = np.full(
        (rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, channels), 255, np.uint8
    )
    for number, picture in enumerate(as_bytes(images)):
        row, column = divmod(number, columns)
        top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
        sheet[top : top + height, left : left + width] = picture
    _save(sheet, path)


def write_each(images: Tensor, directory: Path) -> list[Path]:
    """Every image as a file of its own, numbered."""
    directory.mkdir(parents=True, exist_ok=True)
    digits = max(4, len(str(len(images) - 1)))
    paths = [directory / f"{number:0{digits}}.png" for number in range(len(images))]
    for picture, path in zip(as_bytes(images), paths, strict=True):
        _save(picture, path)
    return paths


def as_bytes(images: Tensor) -> Any:
    """(n, h, w, c) bytes of images in [-1, 1]."""
    scaled = ((images.clamp(-1, 1) + 1) * 127.5).round()
    return scaled.byte().permute(0, 2, 3, 1).numpy()


def _save(pixels: Any, path: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency(
            "Pictures are written with Pillow, which is not installed. "
            "Install it with: pip install 'garfield-ml[fedgan]'"
        ) from None
    grey = pixels.shape[2] == 1
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        Image.fromarray(pixels[..., 0] if grey else pixels).save(partial, format="PNG")
