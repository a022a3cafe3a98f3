"""Requests: small JSON objects, checked field by field before anybody acts on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TypeVar

from garfield.core.bounds import shown
from garfield.core.errors import UnknownName
from garfield.core.files import as_json
from garfield.split.wire.checks import (
    check_choice,
    check_hash,
    check_name,
    check_number,
    check_text,
    json_object,
)
from garfield.split.wire.refusals import Refusal

MAX_REQUEST = 2 << 20  # bytes; the graph of a large module has about 200 KB
MAX_SAMPLES = 65_536  # in one object, or one request
MAX_DIMS = 6

Request = TypeVar("Request")


@dataclass(frozen=True, kw_only=True)
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
        if self.model is not None:
            check_text("model", self.model, 100)
        else:
            check_text("graph", self.graph, MAX_REQUEST, printable=False)
        check_hash("weights", self.weights)


@dataclass(frozen=True)
class ExtractRequest(Model):
    """Compute the features of samples of one object: the body of `POST /v1/extract`."""

    data: str
    """Where the object is: `swift://container/prefix`, `s3://bucket/prefix`, `file:///folder`."""
    object_name: str
    """Its name below that."""
    split: int
    """How many layers run at the server; 0: none, and the transformed images travel."""
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
        super().__post_init__()
        check_text("data", self.data, 1024)
        check_name("object_name", self.object_name)
        check_hash("sha256", self.sha256)
        for name, most in (("split", 10_000), ("epoch", 2**31), ("seed", 2**63 - 1)):
            check_number(name, getattr(self, name), 0, most)
        check_number("first_sample_id", self.first_sample_id, 0, 2**48)
        check_number("batch", self.batch, 1, 1_000_000)
        check_text("transforms", self.transforms, 16_384, printable=False)
        check_choice("dtype", self.dtype, ("float32", "float16"))
        check_choice("compression", self.compression, ("none", "zlib"))
        if self.samples is not None:
            if not 1 <= len(self.samples) <= MAX_SAMPLES:
                raise Refusal.MALFORMED.error(
                    f"samples must name 1..{MAX_SAMPLES} of them, got {len(self.samples)}."
                )
            for index in self.samples:
                check_number("samples", index, 0, MAX_SAMPLES - 1)


@dataclass(frozen=True)
class ProfileRequest(Model):
    """Measure memory and time of a model's first layers: the body of `POST /v1/profile`."""

    data: str
    """Where the weights are; the token must be able to read there."""
    split: int
    input_shape: tuple[int, ...] = (3, 224, 224)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_text("data", self.data, 1024)
        check_number("split", self.split, 0, 10_000)
        if not 1 <= len(self.input_shape) <= MAX_DIMS:
            raise Refusal.MALFORMED.error(f"input_shape has 1..{MAX_DIMS} sides.")
        for side in self.input_shape:
            check_number("input_shape", side, 1, 4096)


@dataclass(frozen=True)
class TrainRequest:
    """Fine-tune beside the store, from first to last: the body of `POST /v1/train` (ALL_IN_COS)."""

    data: str
    objects: tuple[str, ...]
    """Names of the objects to train on, in the order of the index."""
    counts: tuple[int, ...]
    """How many samples each holds, as the index says: the order of training is drawn by these."""
    sha256: tuple[str, ...]
    """The hash of each, as the index says: one that hashes to anything else is refused."""
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
        check_text("data", self.data, 1024)
        check_name("result", self.result)
        if not 1 <= len(self.objects) <= 100_000:
            raise Refusal.MALFORMED.error(f"objects: got {len(self.objects)} names, 1 is least.")
        for name in self.objects:
            check_name("objects", name)
        name, times = Counter(self.objects).most_common(1)[0]
        if times > 1:
            raise Refusal.MALFORMED.error(f"objects names {shown(name)} {times} times.")
        if not len(self.objects) == len(self.counts) == len(self.sha256):
            raise Refusal.MALFORMED.error(
                f"counts and sha256 must tell of each of the {len(self.objects)} objects, got "
                f"{len(self.counts)} and {len(self.sha256)}."
            )
        for count in self.counts:
            check_number("counts", count, 1, MAX_SAMPLES)
        for digest in self.sha256:
            check_hash("sha256", digest or "")  # None would be none, which is not allowed here
        check_text("model", self.model, 100)
        check_hash("weights", self.weights)
        for name, least, most in (
            ("freeze", 0, 10_000), ("classes", 2, 100_000), ("epochs", 1, 10_000),
            ("batch", 1, 1_000_000), ("seed", 0, 2**63 - 1),
        ):  # fmt: skip
            check_number(name, getattr(self, name), least, most)
        check_text("transforms", self.transforms, 16_384, printable=False)
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
    given = json_object(body, "The request")
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
