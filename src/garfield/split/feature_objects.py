"""Features as objects beside the data: computed once by a server, read by every later epoch.

    .garfield/features/<what they depend on>/<SHA-256 of the object they are of>

The folder is the hash of all that features depend on but their object: the layers and their
weights, the split, the transforms, how numbers are kept, and, where transforms are random, seed
and variant. So other weights or an altered object have features of another name, and nothing
that is out of date is ever found. The content is the stream that a server sends (`wire`), whose
end tells the name and the SHA-256 of what it is: one that was cut, altered or renamed is refused.

The server puts them into the tenant's container with the tenant's own rights, under the name
that follows from the request and no other, so a request makes it write nowhere else.
"""

from __future__ import annotations

import hashlib

import numpy as np

from garfield.core.errors import ObjectDamaged, RequestRefused
from garfield.core.files import as_json
from garfield.split.wire import ExtractRequest, Features, Refusal, decode_features, encode_features
from garfield.split.wire.features import Array

_FOLDER = ".garfield/features"


def features_folder(request: ExtractRequest) -> str:
    """Where features lie of any object that is asked for like this one."""
    if not request.split or request.weights is None:
        raise Refusal.MALFORMED.error("Features are kept of layers with weights that have a hash.")
    names = ("model", "graph", "weights", "split", "transforms", "dtype")
    depends_on = {name: getattr(request, name) for name in names}
    if _is_random(request):
        depends_on |= {"seed": request.seed, "epoch": request.epoch}
    return f"{_FOLDER}/{hashlib.sha256(as_json(depends_on).encode()).hexdigest()}"


def features_name(request: ExtractRequest) -> str:
    """Where the features of the request's object lie."""
    if request.sha256 is None:
        raise Refusal.MALFORMED.error("Features are kept by the hash of their object: give sha256.")
    # the same image is drawn for differently at another place of the data set
    place = f"-{request.first_sample_id}" if _is_random(request) else ""
    return f"{features_folder(request)}/{request.sha256}{place}"


def pack_features(request: ExtractRequest, values: Array, labels: tuple[int, ...]) -> bytes:
    """The object that keeps the features of all samples of the request's object."""
    name = features_name(request)
    end = {"name": name, "sha256": _content_hash(name, values, labels)}
    return b"".join(encode_features(values, labels, end, request.compression))


def open_features(request: ExtractRequest, raw: bytes, shape: tuple[int, ...]) -> Features:
    """What such an object keeps; ObjectDamaged if it is not what its name says.

    `shape` is that of one sample's features.
    """
    name, count = features_name(request), len(request.samples or ())
    try:
        found = decode_features([raw], count, shape)
    except RequestRefused as broken:
        raise ObjectDamaged(f"{name} was altered. {broken}") from None
    digest = _content_hash(name, found.values, found.labels)
    if found.trailer.get("name") != name or found.trailer.get("sha256") != digest:
        raise ObjectDamaged(f"{name} was altered: its hash, or what it is of, is not what it says.")
    return found


def _content_hash(name: str, values: Array, labels: tuple[int, ...]) -> str:
    about = as_json([name, str(values.dtype), values.shape, labels])
    digest = hashlib.sha256(about.encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _is_random(request: ExtractRequest) -> bool:
    from garfield.split.transforms import Transforms

    return Transforms.from_json(request.transforms).is_random
