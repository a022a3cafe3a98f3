"""`garfield split put`: pack a folder of images into a store, shuffled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.errors import ConfigError
from garfield.split.objects.format import JPEG_QUALITY, MAX_IMAGES, MAX_SIDE, Kind
from garfield.split.objects.index import Index
from garfield.split.objects.packing import Packing, pack_folder
from garfield.split.stores import open_store
from garfield.split.stores.settings import StoreSettings


@dataclass(frozen=True)
class PutSettings:
    """What to pack, how, and where to."""

    to: str = ""
    """Where to: file:///directory, swift://container/prefix or s3://bucket/prefix."""
    stored_as: str = "jpeg"
    """How images are stored: jpeg, uint8 or float32."""
    images_per_object: Annotated[int, Within(1, MAX_IMAGES)] = 100
    """Images in one object."""
    side: Annotated[int | None, Within(1, MAX_SIDE)] = None
    """Bring images to side × side pixels; needed for uint8 and float32 if sizes differ."""
    seed: int = 0
    """Seed of the shuffle."""
    quality: Annotated[int, Within(1, 100)] = JPEG_QUALITY
    """JPEG quality of images that are not stored as they are."""
    connection: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        kinds = [kind.value for kind in Kind]
        if self.stored_as not in kinds:
            raise ConfigError(f"stored_as must be one of {', '.join(kinds)}, not {self.stored_as}.")


@dataclass(frozen=True)
class PutSummary:
    """What was stored, and how long it took."""

    url: str
    images: int
    classes: int
    objects: int
    stored_bytes: int
    time_s: float

    @property
    def stored_bytes_per_image(self) -> float:
        return self.stored_bytes / self.images


def put(
    folder: Path,
    settings: PutSettings,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PutSummary:
    """Pack a folder of class subfolders; goes on where an interrupted put was.

    `progress` is called with the images stored so far, and how many there are.
    """
    if not settings.to:
        raise ConfigError("Say where to with --to, for example --to swift://photos/train.")
    began = time.monotonic()
    store = open_store(settings.to, settings=settings.connection)
    try:
        packing = Packing(
            kind=Kind(settings.stored_as),
            images_per_object=settings.images_per_object,
            side=settings.side,
            seed=settings.seed,
            quality=settings.quality,
        )
        index = pack_folder(folder, store, packing, progress=progress)
    finally:
        store.close()
    return _summary(settings.to, index, time.monotonic() - began)


def _summary(url: str, index: Index, time_s: float) -> PutSummary:
    return PutSummary(
        url=url,
        images=index.total,
        classes=len(index.classes),
        objects=len(index.objects),
        stored_bytes=sum(entry.bytes for entry in index.objects),
        time_s=time_s,
    )
