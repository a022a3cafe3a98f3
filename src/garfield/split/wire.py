"""What a client and a server of a split training say to each other: JSON, and raw tensors.

A request is one JSON object, small and bounded; whose rights it is made with stands beside it,
in the HTTP header `ACCESS_HEADER`, so that bodies may be logged. The answer to an extraction
is a stream:

    "GFF1", length of the header, header {dtype, shape, labels, compression}
    frame: kind, length, CRC-32, bytes      rows of features, as the server computes them
    frame: the end, a JSON object           the COS batch used, times, peak memory

or ends in a frame that says what went wrong. Nothing is unpickled. Every length is checked
before anything of that length is held, so what the other side can make us hold is what we
asked for. Pure: no sockets, no clock. Who refuses says why by a `Refusal`, never by prose.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import shown
from garfield.core.errors import RequestRefused, UnknownName
from garfield.core.files import as_json

ACCESS_HEADER = "X-Garfield-Access"
MAX_REQUEST = 2 << 20  # bytes; the graph of a large module has about 200 KB
MAX_HEADER = 4 << 20  # bytes of a feature stream's header: the labels of 65,536 samples
MAX_FRAME = 8 << 20  # bytes
MAX_SAMPLES = 65_536  # in one object, or one request
MAX_DIMS, MAX_SIDE = 6, 1 << 24

_MAGIC = b"GFF1"
_LENGTH = struct.Struct("<4sI")
_FRAME = struct.Struct("<BII")  # kind, length, CRC-32
_ROWS, _END, _ERROR = 1, 2, 3
_HASH = re.compile(r"[0-9a-f]{64}")

Array = npt.NDArray[Any]
Request = TypeVar("Request")


class Refusal(Enum):
    """Why a request was not answered; the value is its name in JSON and its HTTP status."""

    MALFORMED = ("malformed", 400)
    UNAUTHORISED = ("unauthorised", 401)
    FORBIDDEN = ("forbidden", 403)
    MISSING = ("missing", 404)
    SLOW = ("slow", 408)
    TOO_LARGE = ("too-large", 413)
    BROKEN_OBJECT = ("broken-object", 422)
    BAD_MODEL = ("bad-model", 422)
    FAILED = ("failed", 500)
    STORE = ("store", 502)
    BUSY = ("busy", 503)
    OUT_OF_MEMORY = ("out-of-memory", 507)

    @property
    def word(self) -> str:
        """Its name in JSON."""
        return self.value[0]

    @property
    def status(self) -> int:
        """The HTTP status that goes with it."""
        return self.value[1]

    @property
    def passes(self) -> bool:
        """Whether another server, or the same one later, may answer the same request."""
        return self in (Refusal.SLOW, Refusal.FAILED, Refusal.STORE, Refusal.BUSY)

    @classmethod
    def named(cls, word: object) -> Refusal:
        """The refusal of that name; FAILED for one that we do not know."""
        return next((each for each in cls if each.word == word), cls.FAILED)

    def error(self, message: str) -> RequestRefused:
        """The exception for it."""
        return RequestRefused(message, self.word, self.status)


def as_body(refused: RequestRefused) -> bytes:
    """A refusal as the JSON body of an answer."""
    return as_json({"error": refused.refusal, "message": str(refused)}).encode()


def from_body(body: bytes, status: int) -> RequestRefused:
    """The refusal that an answer's body tells, whatever it holds."""
    try:
        told = json.loads(body[:MAX_FRAME])
        refusal, message = Refusal.named(told["error"]), str(told["message"])[:1000]
    except (ValueError, TypeError, KeyError, RecursionError):
        by_status = next((each for each in Refusal if each.status == status), Refusal.FAILED)
        return by_status.error(f"The server answered {status} and did not say why.")
    return refusal.error(message)


@dataclass(frozen=True)
class Model:
    """Which layers run at the server: a registered model, or a graph of allowed operators."""

    model: str | None = None
    """The name of a registered model; or, for the user's own:"""
    graph: str | None = None
    """The JSON text of `split/models/graph.py`."""
    weights: str | None = None
    """The SHA-256 of the weights, which are in the tenant's container under that name; without
    it a registered model has the weights that `seed` draws: for measurements."""

    def __post_init__(self) -> None:
        if (self.model is None) == (self.graph is None):
            raise Refusal.MALFORMED.error("Give either model, a registered name, or graph.")
        _text("model", self.model, 100)
        _text("graph", self.graph, MAX_REQUEST, printable=False)
        _hash("weights", self.weights)


@dataclass(frozen=True)
class ExtractRequest:
    """Compute the features of samples of one object: the body of `POST /v1/extract`."""

    data: str
    """Where the object is: `swift://container/prefix`, `s3://bucket/prefix`, `file:///folder`."""
    object_name: str
    """Its name below that."""
    split: int
    """How many layers run at the server; 0: none, and the transformed images travel."""
    model: str | None = None
    graph: str | None = None
    weights: str | None = None
    samples: tuple[int, ...] | None = None
    """Positions in the object, in the order wanted; None for all."""
    first_sample_id: int = 0
    """The number, over all objects, of this one's first sample: randomness is drawn from it."""
    transforms: str = "[]"
    """The JSON text of `split/transforms.py`."""
    seed: int = 0
    epoch: int = 0
    batch: int = 200
    """The training batch: the COS batch is never larger."""
    dtype: str = "float32"
    """How features travel: float32, or float16."""
    compression: str = "none"
    """How they are packed on the way: none, or zlib."""
    sha256: str | None = None
    """What the index says of the whole object; one that hashes to anything else is refused."""

    def __post_init__(self) -> None:
        _text("data", self.data, 1024)
        check_name("object_name", self.object_name)
        _hash("sha256", self.sha256)
        _ = self.prefix  # checks it
        for name, most in (("split", 10_000), ("epoch", 2**31), ("seed", 2**63 - 1)):
            _number(name, getattr(self, name), 0, most)
        _number("first_sample_id", self.first_sample_id, 0, 2**48)
        _number("batch", self.batch, 1, 1_000_000)
        _text("transforms", self.transforms, 16_384, printable=False)
        _choice("dtype", self.dtype, ("float32", "float16"))
        _choice("compression", self.compression, ("none", "zlib"))
        if self.samples is not None:
            if not 1 <= len(self.samples) <= MAX_SAMPLES:
                raise Refusal.MALFORMED.error(
                    f"samples must name 1..{MAX_SAMPLES} of them, got {len(self.samples)}."
                )
            for index in self.samples:
                _number("samples", index, 0, MAX_SAMPLES - 1)

    @property
    def prefix(self) -> Model:
        """The layers that it asks for, up to the split."""
        return Model(self.model, self.graph, self.weights)


@dataclass(frozen=True)
class ProfileRequest:
    """Measure memory and time of a model's first layers: the body of `POST /v1/profile`."""

    data: str
    """Where the weights are; the token must be able to read there."""
    split: int
    input_shape: tuple[int, ...] = (3, 224, 224)
    model: str | None = None
    graph: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        _text("data", self.data, 1024)
        _number("split", self.split, 0, 10_000)
        if not 1 <= len(self.input_shape) <= MAX_DIMS:
            raise Refusal.MALFORMED.error(f"input_shape has 1..{MAX_DIMS} sides.")
        for side in self.input_shape:
            _number("input_shape", side, 1, 4096)
        _ = self.prefix

    @property
    def prefix(self) -> Model:
        return Model(self.model, self.graph, self.weights)


@dataclass(frozen=True)
class TrainRequest:
    """Fine-tune beside the store, from first to last: the body of `POST /v1/train` (ALL_IN_COS)."""

    data: str
    objects: tuple[str, ...]
    """Names of the objects to train on, in the order of the index."""
    model: str
    freeze: int
    """Layers that are not trained."""
    classes: int
    weights: str | None = None
    epochs: int = 1
    batch: int = 200
    lr: float = 0.01
    momentum: float = 0.9
    transforms: str = "[]"
    seed: int = 0
    result: str = ".garfield/trained/model.safetensors"
    """The object that the trained layers are put into, with the tenant's own rights."""

    def __post_init__(self) -> None:
        _text("data", self.data, 1024)
        check_name("result", self.result)
        if not 1 <= len(self.objects) <= 100_000:
            raise Refusal.MALFORMED.error(f"objects: got {len(self.objects)} names, 1 is least.")
        for name in self.objects:
            check_name("objects", name)
        _ = Model(self.model, None, self.weights)
        for name, least, most in (
            ("freeze", 0, 10_000), ("classes", 2, 100_000), ("epochs", 1, 10_000),
            ("batch", 1, 1_000_000), ("seed", 0, 2**63 - 1),
        ):  # fmt: skip
            _number(name, getattr(self, name), least, most)
        _text("transforms", self.transforms, 16_384, printable=False)
        for name, value in (("lr", self.lr), ("momentum", self.momentum)):
            if type(value) not in (int, float) or not 0 <= value <= 1000:
                raise Refusal.MALFORMED.error(f"{name} must be within 0..1000, got {shown(value)}.")


def encode_request(request: ExtractRequest | ProfileRequest | TrainRequest) -> bytes:
    """A request as the body of a POST; what is at its default is left out."""
    given = {
        each.name: value
        for each in fields(request)
        if (value := getattr(request, each.name)) != each.default
    }
    body = as_json(given).encode()
    if len(body) > MAX_REQUEST:
        raise Refusal.TOO_LARGE.error(
            f"The request has {len(body)} bytes, {MAX_REQUEST} are allowed: send a smaller graph, "
            "or ask for fewer samples at once."
        )
    return body


def decode_request(body: bytes, kind: type[Request] = ExtractRequest) -> Request:  # type: ignore[assignment]
    """The request that a body holds; RequestRefused for anything else."""
    if len(body) > MAX_REQUEST:
        raise Refusal.TOO_LARGE.error(f"A request of {len(body)} bytes; at most {MAX_REQUEST}.")
    given = _object(body, "The request")
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise Refusal.MALFORMED.error(str(UnknownName("a field of a request", name, known)))
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = tuple(value)
        elif isinstance(value, dict):
            raise Refusal.MALFORMED.error(f"{name} cannot be an object.")
    try:
        return kind(**given)
    except TypeError:  # a field without a default, or a value of the wrong kind
        needed = [each.name for each in fields(kind) if each.name not in given]  # type: ignore[arg-type]
        raise Refusal.MALFORMED.error(
            f"The request is not whole: a field has the wrong kind, or one of {needed} is missing."
        ) from None


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
        given = _object(text, "The header of the features")
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
            self._trailer = _object(content, "The end of the features")
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


def check_name(what: str, name: object) -> None:
    """Refuse a name that could mean anything but an object below its prefix."""
    _text(what, name, 1024)
    if name is None or any(part in ("", ".", "..") for part in str(name).split("/")):
        raise Refusal.MALFORMED.error(f"{what} must be a plain name, got {shown(name)}.")


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


def _object(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object without repeated names and numbers that are none."""
    try:
        found = json.loads(
            text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_not_finite
        )
    except (ValueError, RecursionError) as problem:  # a UnicodeDecodeError is one
        raise Refusal.MALFORMED.error(f"{what} is not JSON: {shown(str(problem))}.") from None
    if not isinstance(found, dict):
        raise Refusal.MALFORMED.error(f"{what} is not a JSON object.")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _not_finite(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _broken(detail: str) -> RequestRefused:
    return Refusal.FAILED.error(f"The features cannot be used: {detail}.")


def _whole(numbers: object, least: int, most: int) -> bool:
    return isinstance(numbers, list) and all(
        type(each) is int and least <= each <= most for each in numbers
    )


def _text(what: str, value: object, most: int, *, printable: bool = True) -> None:
    if value is None and what in ("model", "graph"):
        return
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise Refusal.MALFORMED.error(f"{what} must be a text of 1..{most} characters.")
    if printable and not value.isprintable():
        raise Refusal.MALFORMED.error(f"{what} must be printable, got {shown(value)}.")


def _hash(what: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and _HASH.fullmatch(value)):
        raise Refusal.MALFORMED.error(
            f"{what} must be the 64 hexadecimal digits of a SHA-256, got {shown(value)}."
        )


def _number(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise Refusal.MALFORMED.error(
            f"{what} must be a whole number within {least}..{most}, got {shown(value)}."
        )


def _choice(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise Refusal.MALFORMED.error(f"{what} must be one of {known}, got {shown(value)}.")
