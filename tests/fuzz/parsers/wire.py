"""Requests, headers and chunks, as a peer may send them over gRPC."""

from __future__ import annotations

import numpy as np

from garfield.transport.contract import NEWEST, Key
from garfield.transport.grpc import wire
from tests.fuzz.target import fuzzed

LENGTH = 5
ASKED = [
    wire.Request(Key("model", 7), LENGTH),
    wire.Request(Key("gradient", 0), LENGTH, wire.Flag.DESCRIPTOR),
    wire.Request(Key("model", NEWEST), LENGTH, wire.Flag.DATAGRAMS),
    wire.Request(Key("aggregate", 2**40, 3), LENGTH),
]
ANSWERS = [
    wire.Header(wire.Status.READY, 7, total=4 * LENGTH),
    wire.Header(
        wire.Status.READY, 0, total=4 * LENGTH, flags=wire.Flag.DESCRIPTOR, ticket=b"t" * 16
    ),
    wire.Header(wire.Status.GONE, 8),
]


@fuzzed("wire request", begin_from=[request.encode() for request in ASKED])
def wire_request(data: bytes) -> None:
    """One is refused, or is just what its bytes say."""
    try:
        request = wire.Request.decode(data)
    except wire.WireError as problem:
        assert problem.silence.reason.proof
        return
    assert request.encode() == data
    assert 0 <= request.key.step <= NEWEST
    assert request.total >= request.length


@fuzzed("wire header", begin_from=[header.encode() for header in ANSWERS])
def wire_header(data: bytes) -> None:
    """One is refused, or is just what its bytes say; and only what was asked for is believed."""
    try:
        header = wire.Header.decode(data)
    except wire.WireError as problem:
        assert problem.silence.reason.proof
        return
    assert header.encode() == data
    for request in ASKED:
        try:
            gone = header.gone_at(request)
        except wire.WireError as problem:
            assert problem.silence.reason.proof
            assert problem.silence.detail.isprintable()
            continue
        if gone is None:
            assert header.total == request.total
            assert not header.flags & ~request.flags
        else:
            assert 0 <= gone <= NEWEST


NUMBERS = np.arange(LENGTH, dtype=np.float32)


@fuzzed(
    "wire chunks", begin_from=[NUMBERS.tobytes(), np.full(LENGTH, np.nan, np.float32).tobytes()]
)
def wire_chunks(data: bytes) -> None:
    """A row takes the one chunk that is due and finite, and nothing is written beside it."""
    around = np.zeros(3 * LENGTH, np.float32)
    filling = wire.Filling(around[LENGTH : 2 * LENGTH])
    try:
        filling.add(data)
    except wire.WireError as problem:
        assert problem.silence.reason.proof
    else:
        assert filling.complete
        assert around[LENGTH : 2 * LENGTH].tobytes() == data
        assert np.isfinite(around).all()
    assert not around[:LENGTH].any()
    assert not around[2 * LENGTH :].any()
