"""Requests and feature streams of split training, as a stranger may send them over HTTP."""

from __future__ import annotations

import numpy as np

from garfield.core.errors import RequestRefused
from garfield.split import wire
from tests.fuzz.target import fuzzed

ASKED = [
    wire.ExtractRequest("swift://c/p", "part-0", 3, model="alexnet", samples=(0, 5)),
    wire.ExtractRequest("file:///d", "a/b", 0, graph='{"nodes": []}', dtype="float16"),
]  # fmt: skip
OTHERS = [
    wire.ProfileRequest("s3://b", 3, model="alexnet"),
    wire.TrainRequest("s3://b", ("a",), (5,), ("ab" * 32,), "alexnet", 17, 10),
]
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
STREAMS = [
    b"".join(wire.encode_features(VALUES, [1, 2], {"cos_batch": 2}, packed))
    for packed in ("none", "zlib")
]


@fuzzed("split request", begin_from=[wire.encode_request(each) for each in ASKED])
def split_request(data: bytes) -> None:
    """One is refused with a kind, or can be sent again and is the same."""
    try:
        request = wire.decode_request(data)
    except RequestRefused as refused:
        assert refused.status in (400, 413)
        assert len(str(refused)) < 2000
        return
    assert wire.decode_request(wire.encode_request(request)) == request
    assert ".." not in request.object_name.split("/")


@fuzzed("split jobs", begin_from=[wire.encode_request(each) for each in OTHERS])
def split_jobs(data: bytes) -> None:
    """The same holds of profiles and whole trainings."""
    for kind in (wire.ProfileRequest, wire.TrainRequest):
        try:
            request = wire.decode_request(data, kind)
        except RequestRefused as refused:
            assert refused.status in (400, 413)
            continue
        assert wire.decode_request(wire.encode_request(request), kind) == request


@fuzzed("split features", begin_from=STREAMS)
def split_features(data: bytes) -> None:
    """A stream is refused, or is exactly what was asked for; memory stays within what was asked."""
    reader = wire.FeatureReader(count=2, shape=(3,), most_bytes=1000)
    try:
        for at in range(0, len(data), 7):
            reader.feed(data[at : at + 7])
        features = reader.features()
    except RequestRefused as refused:
        assert str(refused)
        return
    assert features.values.shape == (2, 3)
    assert len(features.labels) == 2
