"""Features as they travel, and as they lie in a store: a header, raw rows in frames, an end.

    "GFF1", length of the header, header {dtype, shape, labels, compression}
    frame: kind, length, CRC-32, bytes      rows of features, as the server computes them
    frame: the end, a JSON object           the COS batch used, times, peak memory

or a last frame that says what went wrong. Nothing is unpickled. Every length is checked before
anything of that length is held, so what the other side can make us hold is what we asked for.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import shown
from garfield.core.errors import RequestRefused
from garfield.core.files import as_json
from garfield.split.wire.checks import json_object
from garfield.split.wire.refusals import MAX_FRAME, Refusal, as_body, from_body
from garfield.split.wire.requests import MAX_DIMS

MAX_HEADER = 4 << 20  # bytes: the labels of 65,536 samples
MAX_SIDE = 1 << 24

_MAGIC = b"GFF1"
_LENGTH = struct.Struct("<4sI")
_FRAME = struct.Struct("<BII")  # kind, length, CRC-32
_ROWS, _END, _ERROR = 1, 2, 3

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FeatureHeader:
    """What a stream of features holds."""

    dtype: str
    shape: tuple[int, ...]
    """(samples, …): of all rows together."""
    labels: tuple[int, ...]
    compression: str = "none"

    @property
    def nbytes(self) -> int:
        """How many bytes the rows have, uncompressed."""
        return int(np.prod(self.shape, dtype=object)) * np.dtype(self.dtype).itemsize

    def encode(self) -> bytes:
        text = as_json(self).encode()
        if len(text) > MAX_HEADER:
            raise Refusal.TOO_LARGE.error(f"A header of {len(text)} bytes; at most {MAX_HEADER}.")
        return _LENGTH.pack(_MAGIC, len(text)) + text

    @classmethod
    def decode(cls, text: bytes) -> FeatureHeader:
        given = json_object(text, "The header of the features")
        try:
            dtype, shape, labels = given["dtype"], given["shape"], given["labels"]
            compression = given["compression"]
        except KeyError as missing:
            raise _broken(f"their header lacks {missing}") from None
        if dtype not in ("float32", "float16") or compression not in ("none", "zlib"):
            raise _broken(f"they are {shown(dtype)}, packed by {shown(compression)}")
        if not _whole(shape, 1, MAX_SIDE) or not 1 <= len(shape) <= MAX_DIMS:
            raise _broken(f"their shape is {shown(shape)}")
        if not _whole(labels, -(2**31), 2**31) or len(labels) != shape[0]:
            raise _broken(f"{shape[0]} samples need as many labels, which are whole numbers")
        return cls(dtype, tuple(shape), tuple(labels), compression)


@dataclass(frozen=True)
class Features:
    """The answer to an extraction."""

    values: Array
    """(samples, …)."""
    labels: tuple[int, ...]
    trailer: Mapping[str, Any] = field(default_factory=dict)
    """What the server tells at the end: `cos_batch`, `seconds`, `peak_bytes`, `retries`."""
    received_bytes: int = 0
    """As they travelled, headers and frames included."""


def row_frames(rows: Array, compression: str = "none") -> Iterator[bytes]:
    """Rows as frames, none longer than MAX_FRAME."""
    raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    for lo in range(0, len(raw), MAX_FRAME // 2):  # zlib may make a piece longer
        piece: Any = raw[lo : lo + MAX_FRAME // 2]
        yield _frame(_ROWS, zlib.compress(piece, 1) if compression == "zlib" else bytes(piece))


def end_frame(trailer: Mapping[str, Any]) -> bytes:
    """The last frame of a stream that is whole."""
    return _frame(_END, as_json(trailer).encode())


def error_frame(refused: RequestRefused) -> bytes:
    """The last frame of a stream that cannot be finished."""
    return _frame(_ERROR, as_body(refused))


def encode_features(
    values: Array, labels: Iterable[int], trailer: Mapping[str, Any], compression: str = "none"
) -> Iterator[bytes]:
    """A whole stream at once: what a server sends piece by piece."""
    labels = tuple(map(int, labels))
    yield FeatureHeader(str(values.dtype), values.shape, labels, compression).encode()
    yield from row_frames(values, compression)
    yield end_frame(trailer)


class FeatureReader:
    """Takes a stream of features in pieces of any size, and puts it together.

    `count` and `shape` (of one sample) are what was asked for: anything else is refused before
    memory is taken for it.
    """

    def __init__(
        self,
        count: int | None = None,
        shape: tuple[int, ...] | None = None,
        most_bytes: int = 4 << 30,
    ) -> None:
        self._count, self._shape, self._most = count, shape, most_bytes
        self._pending = bytearray()
        self.header: FeatureHeader | None = None
        self._values = np.empty(0, np.float32)
        self._into = memoryview(b"")
        self._filled = 0
        self._trailer: Mapping[str, Any] | None = None
        self.received_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece; RequestRefused if the stream is not what was asked for."""
        self.received_bytes += len(piece)
        self._pending += piece
        while self._step():
            pass

    def features(self) -> Features:
        """What arrived, if it is whole."""
        if self.header is None or self._trailer is None or self._pending:
            raise _broken(f"their stream ended after {self._filled} of {len(self._into)} bytes")
        return Features(self._values, self.header.labels, self._trailer, self.received_bytes)

    def _step(self) -> bool:
        """Take one header or frame off what is pending, if it is there whole."""
        if self.header is None:
            return self._take_header()
        if len(self._pending) < _FRAME.size:
            return False
        if self._trailer is not None:
            raise _broken("something follows their end")
        kind, length, crc = _FRAME.unpack_from(self._pending)
        if kind not in (_ROWS, _END, _ERROR) or length > MAX_FRAME:
            raise _broken(f"a frame of kind {kind} has {length} bytes")
        end = _FRAME.size + length
        if len(self._pending) < end:
            return False
        content = bytes(memoryview(self._pending)[_FRAME.size : end])
        del self._pending[:end]
        if zlib.crc32(content) != crc:
            raise _broken(f"a frame of {length} bytes was altered on the way")
        if kind == _ROWS:
            self._add(content)
        elif kind == _ERROR:
            raise from_body(content, Refusal.FAILED.status)
        elif self._filled != len(self._into):
            raise _broken(f"they end after {self._filled} of {len(self._into)} bytes")
        else:
            self._trailer = json_object(content, "The end of the features")
        return True

    def _take_header(self) -> bool:
        if len(self._pending) < _LENGTH.size:
            return False
        magic, length = _LENGTH.unpack_from(self._pending)
        if magic != _MAGIC or length > MAX_HEADER:
            raise _broken("they do not begin as features do")
        end = _LENGTH.size + length
        if len(self._pending) < end:
            return False
        header = FeatureHeader.decode(bytes(self._pending[_LENGTH.size : end]))
        del self._pending[:end]
        asked = (self._count or header.shape[0], *(self._shape or header.shape[1:]))
        if header.shape != asked:
            raise _broken(f"their shape is {header.shape} instead of {asked}")
        if header.nbytes > self._most:
            raise _broken(f"they have {header.nbytes} bytes, {self._most} are allowed")
        self.header = header
        self._values = np.empty(header.shape, header.dtype)
        self._into = self._values.reshape(-1).view(np.uint8).data
        return True

    def _add(self, content: bytes) -> None:
        assert self.header is not None
        if self.header.compression == "zlib":
            content = _inflated(content, len(self._into) - self._filled)
        if not content or self._filled + len(content) > len(self._into):
            raise _broken(f"{len(content)} bytes come after {self._filled} of {len(self._into)}")
        self._into[self._filled : self._filled + len(content)] = content
        self._filled += len(content)


def decode_features(
    stream: Iterable[bytes],
    count: int | None = None,
    shape: tuple[int, ...] | None = None,
    most_bytes: int = 4 << 30,
) -> Features:
    """The features that a stream of pieces holds; RequestRefused if it is cut or altered."""
    reader = FeatureReader(count, shape, most_bytes)
    for piece in stream:
        reader.feed(piece)
    return reader.features()


def _frame(kind: int, content: bytes) -> bytes:
    return _FRAME.pack(kind, len(content), zlib.crc32(content)) + content


def _inflated(content: bytes, room: int) -> bytes:
    """A compressed frame's bytes, never more than there is room for."""
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(content, min(room, MAX_FRAME) + 1)
    except zlib.error as problem:
        raise _broken(f"a frame cannot be unpacked ({problem})") from None
    if not inflate.eof or inflate.unused_data:
        raise _broken("a frame unpacks to more than was announced")
    return plain


def _broken(detail: str) -> RequestRefused:
    return Refusal.FAILED.error(f"The features cannot be used: {detail}.")


def _whole(numbers: object, least: int, most: int) -> bool:
    return isinstance(numbers, list) and all(
        type(each) is int and least <= each <= most for each in numbers
    )
