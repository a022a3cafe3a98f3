"""One packed object: a hundred images or so with their labels, whole or refused.

    offset  size  what
    0       8     b"GARFPACK"
    8       4     version, little endian: 1
    12      4     length of the header, little endian
    16      …     header, JSON: kind, count, labels, shapes, offsets, payload_bytes, sha256
    …       …     payload: the images one after the other, nothing between and nothing behind

Kinds are `jpeg` (encoded, each of its own size; `offsets` says where each begins, `shapes` its
height and width), `uint8` (height × width × 3) and `float32` (3 × height × width, pixels within
0..1, as an uint8 divided by 255): arrays of one shape. `sha256` is the payload's.

Nothing in an object is believed: sizes are compared with each other and with bounds before
anything is allocated, and an encoded image is decoded only after its own header has told the
size that the object's header told.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError, ObjectDamaged
from garfield.core.files import as_json

MAGIC = b"GARFPACK"
VERSION = 1
MAX_HEADER = 16 << 20  # bytes
MAX_IMAGES = 65_536  # as many as one request may ask for
MAX_SIDE = 4096  # pixels
MAX_LABEL = 2**31 - 1
JPEG_QUALITY = 92  # of images that come as arrays; JPEG files are kept as they are

_PREFIX = struct.Struct("<8sII")

Images: TypeAlias = "list[npt.NDArray[Any]] | npt.NDArray[Any]"
"""uint8 (height, width, 3) each, or one float32 array (n, 3, height, width)."""


class Kind(str, Enum):
    """How images are stored."""

    JPEG = "jpeg"
    UINT8 = "uint8"
    FLOAT32 = "float32"


@dataclass(frozen=True)
class PackedObject:
    """An object that was found to be whole."""

    name: str
    kind: Kind
    labels: npt.NDArray[np.int64]
    shapes: tuple[tuple[int, int], ...]
    """Height and width: of each image, or one of all."""
    payload: memoryview = field(repr=False)
    offsets: tuple[int, ...] = field(repr=False, default=())
    """Where each JPEG begins, and where the last ends; empty for arrays."""
    size: int = 0
    """Bytes of the whole object, as stored."""

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def stored_bytes_per_image(self) -> float:
        """What one image takes in the store, its part of the header included."""
        return self.size / self.count

    def encoded(self, index: int) -> bytes:
        """One image as it is stored."""
        self._check([index])
        if self.kind is Kind.JPEG:
            return bytes(self.payload[self.offsets[index] : self.offsets[index + 1]])
        each = len(self.payload) // self.count
        return bytes(self.payload[index * each : (index + 1) * each])

    def images(self, indices: Sequence[int] | None = None) -> Images:
        """Some images, or all; views of the object where it holds arrays."""
        chosen = range(self.count) if indices is None else indices
        self._check(chosen)
        if self.kind is Kind.JPEG:
            return [self._decoded(index) for index in chosen]
        height, width = self.shapes[0]
        if self.kind is Kind.UINT8:
            pixels = np.frombuffer(self.payload, np.uint8).reshape(self.count, height, width, 3)
            return [pixels[index] for index in chosen]
        floats = np.frombuffer(self.payload, np.dtype("<f4"))
        return floats.reshape(self.count, 3, height, width)[np.asarray(chosen, np.int64)]

    def _decoded(self, index: int) -> npt.NDArray[np.uint8]:
        begin, end = self.offsets[index], self.offsets[index + 1]
        return decode_image(
            self.payload[begin:end], ("JPEG",), f"{self.name}, image {index}", self.shapes[index]
        )

    def _check(self, indices: Sequence[int]) -> None:
        wrong = next((i for i in indices if not 0 <= i < self.count), None)
        if wrong is not None:
            raise InputError(f"{self.name} holds images 0..{self.count - 1}, asked for {wrong}.")

    @classmethod
    def parse(
        cls, data: bytes | bytearray | memoryview, name: str = "object", *, hashed: bool = False
    ) -> PackedObject:
        """Read an object; ObjectDamaged, by its name and with numbers, if anything is amiss.

        Say `hashed` if all of it has been compared with a hash already: that takes as long as
        decoding it.
        """
        return _parsed(memoryview(data), name, hashed)


def pack(
    images: Sequence[Any], labels: Sequence[int], kind: Kind | str, *, quality: int = JPEG_QUALITY
) -> bytes:
    """One object of these images: uint8 arrays (height, width, 3), or JPEG files for `jpeg`."""
    kind = Kind(kind)
    if len(images) != len(labels) or not 0 < len(images) <= MAX_IMAGES:
        raise InputError(
            f"An object holds 1..{MAX_IMAGES} images with a label each, "
            f"got {len(images)} images and {len(labels)} labels."
        )
    for label in labels:
        if not 0 <= int(label) <= MAX_LABEL:
            raise InputError(f"A label is within 0..{MAX_LABEL}, got {label}.")
    if kind is Kind.JPEG:
        parts = [i if isinstance(i, bytes) else encode_jpeg(i, quality) for i in images]
        shapes = [jpeg_shape(part) for part in parts]
        offsets = [0, *itertools.accumulate(map(len, parts))]
    else:
        arrays = [_pixels(image) for image in images]
        shapes = sorted({array.shape[:2] for array in arrays})
        if len(shapes) > 1:
            raise InputError(
                f"Images stored as {kind.value} must be of one size, got {shapes[0]} and "
                f"{shapes[1]} among others. Give a size to bring them to, or store them as jpeg."
            )
        parts = [_stored(array, kind) for array in arrays]
        offsets = []
    payload = b"".join(parts)
    header = as_json(
        {
            "kind": kind.value,
            "count": len(labels),
            "labels": [int(label) for label in labels],
            "shapes": [[int(side) for side in shape] for shape in shapes],
            "offsets": offsets,
            "payload_bytes": len(payload),
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
    ).encode()
    return _PREFIX.pack(MAGIC, VERSION, len(header)) + header + payload


def encode_jpeg(pixels: npt.NDArray[Any], quality: int = JPEG_QUALITY) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(_pixels(pixels)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def jpeg_shape(data: bytes) -> tuple[int, int]:
    """Height and width of a JPEG file, without decoding it; InputError if it is none."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            width, height = image.size
    except Exception as problem:  # whatever a broken file makes of Pillow
        raise InputError(f"Not a JPEG file: {type(problem).__name__}: {problem}") from None
    if max(height, width) > MAX_SIDE:
        raise InputError(f"An image has at most {MAX_SIDE} pixels a side, got {height}×{width}.")
    return height, width


def decode_image(
    data: bytes | memoryview,
    formats: tuple[str, ...],
    name: str,
    shape: tuple[int, int] | None = None,
) -> npt.NDArray[np.uint8]:
    """An image as uint8 (height, width, 3); ObjectDamaged if it is broken or of another shape."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            width, height = image.size
            if shape is not None and (height, width) != shape:
                raise ObjectDamaged(
                    f"{name} is {height}×{width} pixels, its header says {shape[0]}×{shape[1]}."
                )
            if max(height, width) > MAX_SIDE:
                raise ObjectDamaged(
                    f"{name} is {height}×{width} pixels; at most {MAX_SIDE} a side are read."
                )
            return np.asarray(image.convert("RGB"))
    except ObjectDamaged:
        raise
    except Exception as problem:  # Pillow raises what it meets: OSError, SyntaxError, struct.error
        raise ObjectDamaged(
            f"{name} cannot be decoded: {type(problem).__name__}: {problem}"
        ) from None


def _pixels(image: Any) -> npt.NDArray[np.uint8]:
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise InputError(
            f"An image is uint8 (height, width, 3), got {pixels.dtype} {pixels.shape}."
        )
    if min(pixels.shape) < 1 or max(pixels.shape) > MAX_SIDE:
        raise InputError(f"An image has 1..{MAX_SIDE} pixels a side, got {pixels.shape[:2]}.")
    return np.ascontiguousarray(pixels)


def _stored(pixels: npt.NDArray[np.uint8], kind: Kind) -> bytes:
    if kind is Kind.UINT8:
        return pixels.tobytes()
    return (pixels.transpose(2, 0, 1).astype("<f4") / np.float32(255)).tobytes()


def _parsed(data: memoryview, name: str, hashed: bool) -> PackedObject:
    size = len(data)
    if size < _PREFIX.size:
        raise ObjectDamaged(f"{name} has {size} bytes; a packed object has at least 16.")
    magic, version, header_bytes = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ObjectDamaged(f"{name} is not a packed object: it begins with {magic!r}.")
    if version != VERSION:
        raise ObjectDamaged(f"{name} is of version {version}; this library reads {VERSION}.")
    begin = _PREFIX.size + header_bytes
    if header_bytes > MAX_HEADER or begin > size:
        raise ObjectDamaged(
            f"{name} claims a header of {header_bytes} bytes in an object of {size}; "
            f"at most {MAX_HEADER} are read. It was cut short or altered."
        )
    header = _Header.read(bytes(data[_PREFIX.size : begin]), name)
    payload = data[begin:]
    if len(payload) != header.payload_bytes:
        raise ObjectDamaged(
            f"{name} holds {len(payload)} bytes of images, its header says "
            f"{header.payload_bytes}. It was cut short or altered."
        )
    if not hashed and (found := hashlib.sha256(payload).hexdigest()) != header.sha256:
        raise ObjectDamaged(
            f"{name} was altered: its images hash to {found[:16]}…, "
            f"its header says {header.sha256[:16]}…."
        )
    return PackedObject(
        name=name,
        kind=header.kind,
        labels=np.asarray(header.labels, np.int64),
        shapes=header.shapes,
        payload=payload,
        offsets=header.offsets,
        size=size,
    )


@dataclass(frozen=True)
class _Header:
    """A header whose fields fit each other."""

    kind: Kind
    labels: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]
    offsets: tuple[int, ...]
    payload_bytes: int
    sha256: str

    @classmethod
    def read(cls, text: bytes, name: str) -> _Header:
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise ObjectDamaged(
                f"{name}: its header is no JSON: {type(problem).__name__}."
            ) from None
        if not isinstance(raw, dict):
            raise ObjectDamaged(f"{name}: its header is a {type(raw).__name__}, not an object.")
        try:
            kind = Kind(raw.get("kind"))
        except ValueError:
            raise ObjectDamaged(f"{name}: {str(raw.get('kind'))[:40]!r} is no kind.") from None
        count = _whole(raw.get("count"), 1, MAX_IMAGES, f"{name}: count")
        labels = _wholes(raw.get("labels"), count, MAX_LABEL, f"{name}: labels")
        payload_bytes = _whole(raw.get("payload_bytes"), 1, 2**62, f"{name}: payload_bytes")
        jpeg = kind is Kind.JPEG
        shapes = _shapes(raw.get("shapes"), count if jpeg else 1, f"{name}: shapes")
        expected = count + 1 if jpeg else 0
        offsets = _wholes(raw.get("offsets"), expected, payload_bytes, f"{name}: offsets")
        if jpeg:
            if offsets[0] != 0 or offsets[-1] != payload_bytes:
                raise ObjectDamaged(
                    f"{name}: offsets run from {offsets[0]} to {offsets[-1]}, "
                    f"not from 0 to {payload_bytes}."
                )
            if any(after <= before for before, after in itertools.pairwise(offsets)):
                raise ObjectDamaged(f"{name}: offsets do not grow.")
        else:
            height, width = shapes[0]
            each = height * width * (3 if kind is Kind.UINT8 else 12)
            if payload_bytes != count * each:
                raise ObjectDamaged(
                    f"{name}: {count} images of {height}×{width} as {kind.value} are "
                    f"{count * each} bytes, its header says {payload_bytes}."
                )
        sha256 = raw.get("sha256")
        if not isinstance(sha256, str) or len(sha256) != 64:
            raise ObjectDamaged(f"{name}: sha256 is not a text of 64 characters.")
        return cls(kind, labels, shapes, offsets, payload_bytes, sha256)


def _whole(value: Any, least: int, most: int, what: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ObjectDamaged(
            f"{what} must be a whole number within {least}..{most}, got {str(value)[:40]}."
        )
    return value


def _wholes(value: Any, count: int, most: int, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != count:
        held = len(value) if isinstance(value, list) else type(value).__name__
        raise ObjectDamaged(f"{what} must be a list of {count} numbers, got {held}.")
    if not all(type(each) is int and 0 <= each <= most for each in value):
        raise ObjectDamaged(f"{what} must be whole numbers within 0..{most}.")
    return tuple(value)


def _shapes(value: Any, count: int, what: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or len(value) != count:
        held = len(value) if isinstance(value, list) else type(value).__name__
        raise ObjectDamaged(f"{what} must be a list of {count} sizes, got {held}.")
    shapes = []
    for each in value:
        sides = _wholes(each, 2, MAX_SIDE, what)
        if 0 in sides:
            raise ObjectDamaged(f"{what} has an image without pixels.")
        shapes.append((sides[0], sides[1]))
    return tuple(shapes)
