"""Datagrams, from strangers and from the one peer that has the key; and offers of them."""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
from hypothesis import strategies as st

from garfield.transport.datagrams import packets
from garfield.transport.datagrams.client import Assembly
from garfield.transport.datagrams.links import TRIES
from garfield.transport.datagrams.packets import NET_BLOCK, Offer, Seal, What, Window
from garfield.transport.datagrams.server import Session
from garfield.transport.grpc.wire import WireError, raw
from tests.fuzz.target import bent, fuzzed

SESSION, KEY = b"session-", b"sixteen secret b"
SEAL = Seal(SESSION, KEY)
VECTOR = np.arange(60 * NET_BLOCK + 17, dtype=np.float32)
BLOCKS = packets.blocks_of(len(VECTOR), NET_BLOCK)
REQUEST = SEAL.request(3, Window(16, 8))
BLOCK = SEAL.block(7, memoryview(bytes(4 * NET_BLOCK)))


def session() -> Session:
    kept = np.zeros((TRIES, BLOCKS), np.bool_)
    return Session(SEAL, raw(VECTOR), NET_BLOCK, ip_address("10.0.0.2"), kept)


@fuzzed("datagram of a stranger", begin_from=[REQUEST, BLOCK, SEAL.request(0, Window(0, 1))])
def of_a_stranger(data: bytes) -> None:
    """Without the key, only what the peer itself has sent is ever opened."""
    datagram = memoryview(data)
    asked, block = SEAL.open_request(datagram), SEAL.open_block(datagram)
    assert asked in (None, (3, Window(16, 8)), (0, Window(0, 1)))
    assert block is None or data == BLOCK
    if asked is not None or block is not None:
        assert packets.session_of(datagram) == SESSION
    else:
        assert not [*session().blocks(datagram)]


def _sealed(what: What, number: int, body: bytes) -> bytes:
    return SEAL._sealed(what, number, body)


_numbers = st.integers(0, 2**32 - 1) | st.integers(0, BLOCKS + 1)
_windows = st.builds(
    lambda first, size: packets._WANT.pack(first, size), _numbers, st.integers(0, 2**16 - 1)
)
_sizes = st.sampled_from([0, 1, 4 * 17, 4 * NET_BLOCK - 1, 4 * NET_BLOCK, 4 * NET_BLOCK + 1])
_bodies = _windows | st.binary(max_size=12) | _sizes.map(bytes)
_of_the_peer = st.builds(_sealed, st.sampled_from(What), _numbers, _bodies)


@fuzzed(
    "datagram of the peer",
    begin_from=[REQUEST, BLOCK],
    inputs=_of_the_peer | bent([REQUEST, BLOCK]),
)
def of_the_peer(data: bytes) -> None:
    """With the key, one gets a window of blocks at most, and fills nothing but its row."""
    datagram, serving = memoryview(data), session()
    sent = [*serving.blocks(datagram)]
    assert sum(map(len, sent)) <= packets.WINDOW + len(sent) * packets.OVERHEAD
    for block in sent:
        opened = SEAL.open_block(memoryview(block))
        assert opened is not None
        at = opened[0] * NET_BLOCK
        assert opened[1] == VECTOR[at : at + NET_BLOCK].tobytes()
    assert not [*serving.blocks(datagram)], "a request was answered twice"
    around = np.zeros(3 * len(VECTOR), np.float32)
    assembly = Assembly(around[len(VECTOR) : 2 * len(VECTOR)], NET_BLOCK)
    opened = SEAL.open_block(datagram)
    if opened is not None and assembly.add(*opened):
        assert (~assembly.missing).sum() == 1
        assert not assembly.add(*opened), "a block was taken twice"
    assert not around[: len(VECTOR)].any()
    assert not around[2 * len(VECTOR) :].any()


@fuzzed("offer of datagrams", begin_from=[Offer(SESSION, KEY, 7000, NET_BLOCK).encode()])
def an_offer(data: bytes) -> None:
    """One is refused, or is just what its bytes say, and can be used."""
    try:
        offer = Offer.decode(data)
    except WireError as problem:
        assert problem.silence.reason.proof
        return
    assert offer.encode() == data
    assert 0 < offer.port < 2**16
    Seal(offer.session, offer.key)
