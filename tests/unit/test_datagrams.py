"""The datagrams' format: sealed, bounded, and of no use anywhere else."""

import pytest

from garfield.transport.datagrams import packets
from garfield.transport.datagrams.packets import Offer, Seal, Window, blocks_of, most_at_once
from garfield.transport.datagrams.server import caller
from garfield.transport.grpc.wire import WireError

SESSION, KEY = b"session-", b"sixteen secret b"
SEAL = Seal(SESSION, KEY)
BODY = bytes(range(200))


def test_blocks_and_requests_survive_the_way():
    assert SEAL.open_block(memoryview(SEAL.block(7, memoryview(BODY)))) == (7, BODY)
    request = SEAL.request(3, Window(16, 8))
    assert SEAL.open_request(memoryview(request)) == (3, Window(16, 8))
    assert len(request) < 64  # no lever for whoever wants much for little
    assert packets.session_of(memoryview(request)) == SESSION


def test_a_datagram_that_was_changed_anywhere_is_none():
    sealed = SEAL.block(7, memoryview(BODY))
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert SEAL.open_block(memoryview(changed)) is None, at


def test_a_datagram_that_was_cut_or_lengthened_is_none():
    sealed = SEAL.block(7, memoryview(BODY))
    for size in range(len(sealed)):
        assert SEAL.open_block(memoryview(sealed[:size])) is None
    assert SEAL.open_block(memoryview(sealed + b"x")) is None


def test_a_datagram_of_another_session_or_key_or_purpose_is_none():
    sealed = memoryview(SEAL.block(7, memoryview(BODY)))
    assert Seal(SESSION, b"another secret b").open_block(sealed) is None
    assert Seal(b"another-", KEY).open_block(sealed) is None
    assert SEAL.open_request(sealed) is None
    assert SEAL.open_block(memoryview(SEAL.request(7, Window(0, 1)))) is None


def test_what_is_sent_cannot_be_read_without_the_key():
    assert BODY[:16] not in SEAL.block(7, memoryview(BODY))


def test_no_nonce_seals_two_texts():
    blocks = {SEAL.block(7, memoryview(BODY)) for _ in range(3)}
    assert len(blocks) == 1  # the same again, nothing new under the same number
    a, b = SEAL.request(7, Window(0, 8)), SEAL.block(7, memoryview(BODY[:6]))
    assert a[17:23] != b[17:23]


def test_an_offer_survives_and_a_wrong_one_is_refused():
    offer = Offer(SESSION, KEY, 7000, packets.HOST_BLOCK)
    assert Offer.decode(offer.encode()) == offer
    wrong = [
        b"", b"x" * 34, offer.encode()[:-1], offer.encode() + b"x", None,
        Offer(SESSION, KEY, 0, packets.HOST_BLOCK).encode(),
        *(Offer(SESSION, KEY, 7000, block).encode() for block in (0, 1, 2**31)),
    ]  # fmt: skip
    for message in wrong:
        with pytest.raises(WireError, match="garbage instead of an offer"):
            Offer.decode(message)


@pytest.mark.parametrize("block", [packets.HOST_BLOCK, packets.NET_BLOCK])
def test_a_window_fits_a_socket_s_buffer_and_a_block_its_datagram(block):
    sealed = SEAL.block(0, memoryview(bytes(4 * block)))
    assert len(sealed) <= packets.LARGEST
    assert most_at_once(block) * len(sealed) < 70_000
    assert blocks_of(10 * block, block) == 10
    assert blocks_of(10 * block + 1, block) == 11
    if block == packets.NET_BLOCK:
        assert len(sealed) + 48 <= 1500  # with the headers of IPv6 and UDP


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.2:51234", "10.0.0.2"),
        ("ipv6:%5B::1%5D:51234", "::1"),
        ("ipv6:[::ffff:10.0.0.2]:51234", "10.0.0.2"),
        ("unix:", None),
        ("unix:/tmp/socket", None),
    ],
)
def test_the_host_of_a_call_is_read_from_what_grpc_says(peer, host):
    found = caller(peer)
    assert (None if found is None else str(found)) == host
