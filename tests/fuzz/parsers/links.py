"""Refusals over a link, in the place of a header."""

from __future__ import annotations

from garfield.core.silence import Reason
from garfield.transport.grpc import wire
from garfield.transport.grpc.links import LinkLost, check_not_refused, refusal
from tests.fuzz.target import fuzzed

HEADER = wire.Header(wire.Status.READY, 7, total=20).encode()


@fuzzed(
    "link refusal",
    begin_from=[
        refusal(for_good=True),
        refusal(for_good=False),
        HEADER,
        b"",
        b"GFn1",
        b"GFn1\x02x",
    ],
)
def link_refusal(data: bytes) -> None:
    """Nothing that could be a header is taken for a refusal, and no refusal for a header."""
    try:
        check_not_refused(data)
    except LinkLost:
        assert data == refusal(for_good=False)
    except wire.WireError as problem:
        assert problem.silence.reason is Reason.REFUSED
        assert data.startswith(b"GFn1")
    else:
        assert not data.startswith(b"GFn1")
    if data.startswith(HEADER[:4]):
        check_not_refused(data)
