"""Requests and feature streams: what is said arrives, and nothing else is believed."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from garfield.core.errors import RequestRefused
from garfield.split import wire
from garfield.split.wire import ExtractRequest, FeatureReader, ProfileRequest, Refusal, TrainRequest

ASKED = ExtractRequest(
    data="swift://photos/train",
    object_name="part-00003",
    model="resnet18",
    weights="ab" * 32,
    split=7,
    samples=(3, 1, 4),
    first_sample_id=3000,
    transforms='["flip"]',
    seed=5,
    epoch=2,
    batch=1000,
)
OTHERS = [
    ExtractRequest("file:///data", "a/b", 0, graph="{}", dtype="float16", compression="zlib"),
    ProfileRequest("s3://bucket", 3, (3, 32, 32), model="alexnet"),
    TrainRequest(
        "s3://bucket", ("a", "b"), (5, 6), ("ab" * 32, "cd" * 32), "alexnet", 17, 10, lr=0.5
    ),
]


@pytest.mark.parametrize("request_", [ASKED, *OTHERS], ids=lambda each: type(each).__name__)
def test_a_request_arrives_as_it_was_sent(request_):
    body = wire.encode_request(request_)
    assert wire.decode_request(body, type(request_)) == request_


def test_what_is_at_its_default_does_not_travel():
    body = wire.encode_request(ExtractRequest("file:///d", "o", 1, model="alexnet"))
    assert json.loads(body) == {
        "data": "file:///d", "object_name": "o", "split": 1, "model": "alexnet",
    }  # fmt: skip


def test_a_training_names_no_object_twice():
    with pytest.raises(RequestRefused, match="'b' 2 times"):
        TrainRequest("s3://b", ("a", "b", "b"), (5,) * 3, ("ab" * 32,) * 3, "alexnet", 17, 10)


def _bent(**changes):
    return json.dumps({**json.loads(wire.encode_request(ASKED)), **changes}).encode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"split": 1, "split": 2}', "twice"),
        (_bent(split=True), "split must be a whole number"),
        (_bent(split=-1), "split must be a whole number within 0..10000, got -1"),
        (_bent(split=1.0), "split must be"),
        (_bent(batch=0), "batch must be a whole number within 1..1000000, got 0"),
        (_bent(sede=3), "sede is not a field of a request. Did you mean seed?"),
        (_bent(object_name="../other/secret"), "plain name"),
        (_bent(object_name="/etc/passwd"), "plain name"),
        (_bent(object_name="a//b"), "plain name"),
        (_bent(object_name="a\nb"), "printable"),
        (_bent(object_name=None), "object_name must be a text"),
        (_bent(model={"name": "x"}), "cannot be an object"),
        (_bent(graph="{}"), "either model"),
        (_bent(model=None), "either model"),
        (_bent(weights="../../x"), "64 hexadecimal"),
        (_bent(weights=7), "64 hexadecimal"),
        (_bent(sha256="xyz"), "sha256 must be the 64 hexadecimal"),
        (_bent(samples=[]), "samples must name 1..65536"),
        (_bent(samples=[1, "2"]), "samples must be a whole number"),
        (_bent(samples=5), "not whole"),
        (_bent(samples=[0] * 65_537), "got 65537"),
        (_bent(dtype="object"), "dtype must be one of"),
        (_bent(compression="lzma"), "compression must be one of"),
        (_bent(transforms="x" * 20_000), "transforms must be a text of 1..16384"),
        (b'{"data": "file:///d", "model": "alexnet", "split": 1}', "'object_name'"),
        (b'{"split": NaN}', "not JSON"),
        (b'{"split": 1' + b"0" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_malformed_request_is_refused_and_told_why(body, says):
    with pytest.raises(RequestRefused) as refused:
        wire.decode_request(body)
    assert says in str(refused.value)
    assert refused.value.status == 400
    assert len(str(refused.value)) < 500


def test_an_oversized_request_is_refused_with_its_size():
    with pytest.raises(RequestRefused, match="2097153 bytes") as refused:
        wire.decode_request(b" " * (wire.MAX_REQUEST + 1))
    assert refused.value.status == 413
    with pytest.raises(RequestRefused, match="smaller graph"):
        wire.encode_request(ExtractRequest("file:///d", "o", 1, graph="é" * wire.MAX_REQUEST))


def test_refusals_keep_their_kind_on_the_way():
    for refusal in Refusal:
        back = wire.from_body(wire.as_body(refusal.error("because of 7")), 500)
        assert (back.refusal, str(back)) == (refusal.word, "because of 7")
    assert wire.from_body(b"<html>", 403).refusal == "forbidden"
    assert wire.from_body(b"[" * 100_000, 599).refusal == "failed"
    assert wire.from_body(b'{"error": {}, "message": 3}', 500).refusal == "failed"


VALUES = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


@given(
    arrays.arrays(
        st.sampled_from([np.dtype("float32"), np.dtype("float16")]),
        st.tuples(st.integers(1, 5), st.integers(1, 4)),
    ),
    st.sampled_from(["none", "zlib"]),
    st.integers(1, 50),
)
def test_features_arrive_bit_for_bit_in_pieces_of_any_size(values, compression, size):
    stream = b"".join(wire.encode_features(values, range(len(values)), {"a": 1}, compression))
    pieces = (stream[lo : lo + size] for lo in range(0, len(stream), size))
    got = wire.decode_features(pieces, len(values), values.shape[1:])
    assert got.values.dtype == values.dtype
    assert got.values.tobytes() == values.tobytes()
    assert got.labels == tuple(range(len(values)))
    assert got.trailer == {"a": 1}
    assert got.received_bytes == len(stream)


def test_rows_longer_than_a_frame_travel_in_several():
    values = np.random.default_rng(0).standard_normal((3, 1_500_000)).astype(np.float32)
    frames = [*wire.encode_features(values, [0, 1, 2], {})]
    assert len(frames) > 5
    assert max(map(len, frames)) < wire.MAX_FRAME
    assert np.array_equal(wire.decode_features(frames).values, values)


def test_a_stream_cut_anywhere_is_refused():
    stream = b"".join(wire.encode_features(VALUES, [0, 1, 2, 3], {}))
    for length in range(len(stream)):
        with pytest.raises(RequestRefused, match="ended after"):
            wire.decode_features([stream[:length]])


def test_a_stream_altered_anywhere_in_its_rows_is_refused():
    frames = [*wire.encode_features(VALUES, [0, 1, 2, 3], {})]
    start, stream = len(frames[0]), b"".join(frames)
    for at in range(start, len(stream)):
        bent = bytearray(stream)
        bent[at] ^= 1
        with pytest.raises(RequestRefused):
            wire.decode_features([bytes(bent)])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"count": 5}, "(4, 2, 3) instead of (5, 2, 3)"),
        ({"shape": (2, 4)}, "instead of (4, 2, 4)"),
        ({"most_bytes": 95}, "96 bytes, 95 are allowed"),
    ],
)
def test_features_that_nobody_asked_for_are_refused_before_they_are_held(asked, says):
    reader = FeatureReader(**asked)
    header = next(wire.encode_features(VALUES, [0, 1, 2, 3], {}))
    with pytest.raises(RequestRefused) as refused:
        reader.feed(header)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        {"dtype": "object", "shape": [1, 1], "labels": [0], "compression": "none"},
        {"dtype": "float32", "shape": [1, -1], "labels": [0], "compression": "none"},
        {"dtype": "float32", "shape": [2, 1], "labels": [0], "compression": "none"},
        {"dtype": "float32", "shape": [1] * 9, "labels": [0], "compression": "none"},
        {"dtype": "float32", "shape": [1, 2**24, 2**24], "labels": [0], "compression": "none"},
        {"dtype": "float32", "shape": [1, 1], "labels": ["0"], "compression": "none"},
        {"dtype": "float32", "shape": [1, 1], "labels": [0]},
    ],
)
def test_a_header_that_lies_is_refused(header):
    text = json.dumps(header).encode()
    with pytest.raises(RequestRefused):
        FeatureReader().feed(b"GFF1" + len(text).to_bytes(4, "little") + text)


def test_a_compressed_frame_cannot_unpack_to_more_than_was_announced():
    header = wire.FeatureHeader("float32", (1, 4), (0,), "zlib").encode()
    bomb = zlib.compress(bytes(10_000_000))
    frame = wire.features._FRAME.pack(1, len(bomb), zlib.crc32(bomb)) + bomb
    reader = FeatureReader()
    reader.feed(header)
    with pytest.raises(RequestRefused, match="more than was announced"):
        reader.feed(frame)


def test_an_error_in_the_middle_of_a_stream_is_told():
    frames = [*wire.encode_features(VALUES, [0, 1, 2, 3], {})][:-1]
    refused = Refusal.BROKEN_OBJECT.error("part-00003 was altered.")
    with pytest.raises(RequestRefused, match="part-00003 was altered") as told:
        wire.decode_features([*frames, wire.error_frame(refused)])
    assert told.value.refusal == "broken-object"
