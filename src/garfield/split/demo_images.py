"""Real images for a demonstration: clothes from the data that ship with the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError, MissingDependency
from garfield.data import fashion_small


def write_clothes(folder: Path, count: int, side: int = 224) -> None:
    """Write so many images of Fashion-MNIST, enlarged, in a subfolder for each class.

    Of every class equally many, as far as that goes; PNG, so that nothing is lost.
    """
    image_library = _pillow()
    data = fashion_small()
    pixels = np.concatenate([data.x_train, data.x_test])
    labels = np.concatenate([data.y_train, data.y_test])
    if not 1 <= count <= len(labels):
        raise ConfigError(f"There are 1..{len(labels)} images of clothes, asked for {count}.")
    rank_in_class = np.empty(len(labels), np.int64)
    for label in range(len(data.classes)):
        of_class = np.flatnonzero(labels == label)
        rank_in_class[of_class] = np.arange(len(of_class))
    chosen = np.lexsort((labels, rank_in_class))[:count]
    for number in chosen:
        name = data.classes[labels[number]].replace("/", "-").replace(" ", "-")
        (folder / name).mkdir(parents=True, exist_ok=True)
        image = image_library.fromarray(pixels[number]).convert("RGB")
        image = image.resize((side, side), image_library.Resampling.BICUBIC)
        image.save(folder / name / f"{number:05}.png", compress_level=1)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency(
            "Images are written with pillow, which is not installed. "
            "Install it with: pip install 'garfield-ml[split]'"
        ) from None
    return Image
