"""Pictures of a user's, read from files: of one size, and grey only if all of them are."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from garfield.core.errors import InputError, MissingDependency
from garfield.data.dataset import Bytes

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".tif", ".tiff"}


def pictures_in(folder: Path) -> list[Path]:
    """Files of a folder that are pictures by their names, in the order of these."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)


def classes_in(folder: Path) -> list[Path]:
    """The folders of a folder, one a class, in the order of their names; itself if it has none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Give one that holds a folder of images a class.")
    classes = sorted(path for path in folder.iterdir() if path.is_dir()) or [folder]
    empty = [kind.name for kind in classes if not pictures_in(kind)]
    if empty:
        raise InputError(f"There is no image in {', '.join(empty)} of {folder}. Remove it.")
    return classes


def read_picture(source: Path | bytes, name: str, side: int | None = None) -> Bytes:
    """One picture as bytes, (h, w) if it is grey, else (h, w, 3).

    With a `side` it is scaled so that the shorter one fits, and cropped to a square.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingDependency(
            "Pictures are read with Pillow, which is not installed. "
            "Install it with: pip install 'garfield-ml[pictures]'"
        ) from None
    file: Path | IO[bytes] = BytesIO(source) if isinstance(source, bytes) else source
    try:
        with Image.open(file) as opened:
            picture = ImageOps.exif_transpose(opened)
            picture = picture.convert("L" if picture.mode in ("1", "L", "I;16") else "RGB")
            if side is not None:
                picture = ImageOps.fit(picture, (side, side), Image.Resampling.LANCZOS)
            return np.asarray(picture, dtype=np.uint8)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as problem:
        raise InputError(f"{name} cannot be read as an image: {problem}") from None


def stacked(pictures: Sequence[Bytes], names: Sequence[str]) -> Bytes:
    """(n, h, w) if all are grey, else (n, h, w, 3); InputError if they are of several sizes."""
    height, width = pictures[0].shape[:2]
    for picture, name in zip(pictures, names, strict=True):
        if picture.shape[:2] != (height, width):
            raise InputError(
                f"{name} is {picture.shape[1]}×{picture.shape[0]}, {names[0]} {width}×{height}. "
                "Scale them to one size: --image-side 32, or 64."
            )
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)
    return np.stack(
        [p if p.ndim == 3 else np.repeat(p[..., np.newaxis], 3, axis=2) for p in pictures]
    )
