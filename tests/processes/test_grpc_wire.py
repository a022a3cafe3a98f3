"""What goes over the wire: everything honest survives the trip, nothing else is taken for it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, UnknownName
from garfield.transport.contract import Key, VectorKind
from garfield.transport.grpc import wire

keys = st.builds(
    Key,
    st.sampled_from(["model", "gradient", "proposal", "aggregate", "coded"]),
    st.integers(0, 2**62),
    st.integers(0, 2**32 - 1),
)
requests = st.builds(wire.Request, keys, st.integers(1, 2**60), st.sampled_from(wire.Flag))
headers = st.builds(
    wire.Header,
    st.sampled_from(wire.Status),
    st.integers(0, 2**62),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from(wire.Flag),
    st.binary(min_size=wire.TICKET, max_size=wire.TICKET),
)


@given(requests)
def test_a_request_is_read_as_it_was_written(request):
    message = request.encode()
    assert len(message) <= wire.MAX_REQUEST
    assert wire.Request.decode(message) == request


@given(headers)
def test_a_header_is_read_as_it_was_written(header):
    assert wire.Header.decode(header.encode()) == header


@given(st.binary(max_size=200))
def test_random_bytes_are_no_request_and_no_header(message):
    for kind in (wire.Request, wire.Header):
        with pytest.raises(wire.WireError):
            kind.decode(message)


@given(requests, st.data())
def test_a_damaged_request_is_refused_or_is_another_valid_one(request, data):
    message = bytearray(request.encode())
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= data.draw(st.integers(1, 255))
    try:
        found = wire.Request.decode(bytes(message))
    except wire.WireError:
        return
    assert found != request
    assert wire.Request.decode(found.encode()) == found


@pytest.mark.parametrize("kind", ["", "Model", "a b", "ä", "x" * 33, "1st", "model\n"])
def test_a_kind_is_a_short_plain_word(kind):
    with pytest.raises(ConfigError, match="short lower-case word"):
        VectorKind(kind)
    with pytest.raises(UnknownName, match="not a kind of vector"):
        Key(kind, 0)


@pytest.mark.parametrize("key", [Key("model", -1), Key("model", 2**63), Key("model", 0, -1)])
def test_steps_and_rounds_count_from_zero(key):
    with pytest.raises(ConfigError, match="count from 0"):
        wire.Request(key, 1).encode()


@pytest.mark.parametrize("length", [1, 5, 262_143, 262_144, 262_145, 700_000])
def test_chunks_make_up_the_vector_again(length):
    sent = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    filling = wire.Filling(np.empty(length, np.float32))
    for chunk in wire.chunks(sent):
        assert not filling.complete
        filling.add(chunk)
    assert filling.complete
    np.testing.assert_array_equal(filling.row, sent)


def test_each_chunk_has_one_right_size():
    sent = np.zeros(300_000, np.float32)
    right, last = wire.chunks(sent)
    for wrong in (b"", right[:-4], right + b"0000", last, None, bytearray(right)):
        with pytest.raises(wire.WireError):
            wire.Filling(np.empty(300_000, np.float32)).add(wrong)


@pytest.mark.parametrize("at", [0, 262_143, 262_144, 299_999])
def test_a_chunk_that_is_not_finite_ends_it(at):
    sent = np.zeros(300_000, np.float32)
    sent[at] = np.inf
    filling = wire.Filling(np.empty(300_000, np.float32))
    first, last = wire.chunks(sent)
    if at >= 262_144:
        filling.add(first)
    with pytest.raises(wire.WireError, match="not finite"):
        filling.add(last if at >= 262_144 else first)
