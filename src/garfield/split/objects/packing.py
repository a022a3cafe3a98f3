"""From a folder of images to objects in a store: shuffled by a seed, many images to an object.

A class is a subfolder, and labels number their names in order. The order of images depends on
the seed and the names alone. JPEG files are stored as they are unless a size is asked for;
other images become JPEG, or arrays. What was packed is noted in the store object by object, so
that an interrupted put goes on where it was; the index, which makes it a data set, comes last.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError, ObjectDamaged, ObjectMissing
from garfield.core.files import as_json
from garfield.split.objects.format import (
    JPEG_QUALITY,
    MAX_IMAGES,
    MAX_SIDE,
    Kind,
    encode_jpeg,
    jpeg_shape,
    pack,
)
from garfield.split.objects.index import INDEX_NAME, Index, ObjectEntry
from garfield.split.stores.contract import Store

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
JOURNAL = ".garfield/put.json"
"""What an unfinished put has stored so far."""
DECODERS = 2  # threads: Pillow lets go of the interpreter's lock while it decodes

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Packing:
    """How images become objects."""

    kind: Kind = Kind.JPEG
    images_per_object: int = 100
    """At least 100 where a store takes as long for a small object as for a large one."""
    side: int | None = None
    """Bring images to side × side: shorter side resized, middle cut. None leaves them."""
    seed: int = 0
    quality: int = JPEG_QUALITY

    def __post_init__(self) -> None:
        if not 1 <= self.images_per_object <= MAX_IMAGES:
            raise InputError(
                f"An object holds 1..{MAX_IMAGES} images, got {self.images_per_object}."
            )
        if self.side is not None and not 1 <= self.side <= MAX_SIDE:
            raise InputError(f"Images have 1..{MAX_SIDE} pixels a side, got {self.side}.")


@dataclass(frozen=True)
class FoundImages:
    """Image files by class, in a fixed order."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    """Path relative to the root, and label."""

    @property
    def sha256(self) -> str:
        """Of names, labels and sizes: whether this is the folder of an earlier put."""
        told = [(name, label, (self.root / name).stat().st_size) for name, label in self.files]
        return hashlib.sha256(as_json(told).encode()).hexdigest()


def find_images(folder: Path) -> FoundImages:
    """The images of a folder whose subfolders are classes."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder.")
    classes = sorted(each.name for each in folder.iterdir() if each.is_dir())
    files = [
        (path.relative_to(folder).as_posix(), label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in EXTENSIONS and path.is_file()
    ]
    if not files:
        raise InputError(
            f"{folder} holds no images in subfolders. Put each class into a folder of its own: "
            f"{folder}/cat/1.jpg, {folder}/dog/2.jpg."
        )
    return FoundImages(folder, tuple(classes), tuple(files))


def pack_folder(
    folder: Path,
    store: Store,
    packing: Packing | None = None,
    *,
    progress: Progress = lambda done, total: None,
) -> Index:
    """Pack a folder's images into a store, and return the index that was stored with them.

    `progress` is called with the images stored so far, and how many there are.
    """
    packing = Packing() if packing is None else packing
    found = find_images(folder)
    order = list(found.files)
    random.Random(packing.seed).shuffle(order)
    images = _readable(found.root, order, packing)
    return put_objects(
        store,
        images,
        len(order),
        packing,
        found.classes,
        source=found.sha256,
        progress=progress,
    )


def put_objects(
    store: Store,
    images: Callable[[int, int], Sequence[tuple[Any, int]]],
    count: int,
    packing: Packing,
    classes: Sequence[str],
    *,
    source: str,
    progress: Progress = lambda done, total: None,
) -> Index:
    """Store `count` images, so many to an object, and then the index.

    `images(begin, end)` gives images begin..end − 1 with labels, as `pack` takes them; `source`
    says of what data they are, so that another's unfinished put is not taken for ours.
    """
    made_of = hashlib.sha256(as_json([vars(packing), source, count]).encode()).hexdigest()
    entries = _journal(store, made_of)
    for begin in range(0, count, packing.images_per_object):
        progress(begin, count)
        number = begin // packing.images_per_object
        if number < len(entries):
            continue  # stored before an interruption
        held = images(begin, min(count, begin + packing.images_per_object))
        data = pack(
            [image for image, _ in held],
            [label for _, label in held],
            packing.kind,
            quality=packing.quality,
        )
        name = f"part-{number:06d}.gpk"
        store.put(name, data)
        entries.append(ObjectEntry(name, len(held), len(data), hashlib.sha256(data).hexdigest()))
        if number % (1 + number // 50) == 0:  # it grows with each object: not after each, then
            store.put(JOURNAL, as_json({"made_of": made_of, "objects": entries}).encode())
    index = Index(packing.kind.value, tuple(classes), tuple(entries))
    store.put(INDEX_NAME, index.to_json().encode())
    with suppress(ObjectMissing):
        store.delete(JOURNAL)
    progress(count, count)
    return index


def _journal(store: Store, made_of: str) -> list[ObjectEntry]:
    """What an interrupted put of the same images has stored, as far as it is all there."""
    try:
        raw = json.loads(store.get(JOURNAL))
        if raw["made_of"] != made_of:
            return []
        index = Index.parsed("jpeg", [], raw["objects"], JOURNAL)
    except (ObjectMissing, ObjectDamaged, ValueError, KeyError, TypeError):
        return []
    there = []
    for entry in index.objects:
        try:
            if store.size(entry.name) != entry.bytes:
                break
        except ObjectMissing:
            break
        there.append(entry)
    return there


def _readable(
    root: Path, order: Sequence[tuple[str, int]], packing: Packing
) -> Callable[[int, int], list[tuple[Any, int]]]:
    def images(begin: int, end: int) -> list[tuple[Any, int]]:
        chosen = order[begin:end]
        with ThreadPoolExecutor(DECODERS) as pool:
            read = pool.map(lambda each: _read(root / each[0], packing), chosen)
            return [(image, label) for image, (_, label) in zip(read, chosen, strict=True)]

    return images


def _read(path: Path, packing: Packing) -> bytes | npt.NDArray[np.uint8]:
    """An image file as it is to be stored: a JPEG file, or pixels."""
    from PIL import Image, ImageOps

    data = path.read_bytes()
    jpeg = packing.kind is Kind.JPEG
    if jpeg and packing.side is None and data[:3] == b"\xff\xd8\xff":
        _named(path, jpeg_shape, data)
        return data
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = ImageOps.exif_transpose(image).convert("RGB")
            if packing.side is not None:
                side = (packing.side, packing.side)
                pixels = ImageOps.fit(pixels, side, Image.Resampling.BILINEAR)
            array = np.asarray(pixels)
    except Exception as problem:  # whatever a broken file makes of Pillow
        raise InputError(
            f"{path} is no image that can be read: {type(problem).__name__}: {problem}. "
            "Take it out of the folder."
        ) from None
    return _named(path, lambda a: encode_jpeg(a, packing.quality), array) if jpeg else array


def _named(path: Path, do: Callable[[Any], Any], value: Any) -> Any:
    try:
        return do(value)
    except InputError as problem:
        raise InputError(f"{path}: {problem} Take it out of the folder.") from None


def put_arrays(
    store: Store,
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[Any],
    classes: Sequence[str],
    packing: Packing | None = None,
) -> Index:
    """Store images that are in memory, uint8 (n, height, width, 3), shuffled by the seed."""
    packing = Packing() if packing is None else packing
    order = list(range(len(images)))
    random.Random(packing.seed).shuffle(order)
    source = hashlib.sha256(np.ascontiguousarray(images).tobytes() + bytes(labels)).hexdigest()

    def chosen(begin: int, end: int) -> list[tuple[Any, int]]:
        return [(images[at], int(labels[at])) for at in order[begin:end]]

    return put_objects(store, chosen, len(order), packing, classes, source=source)
