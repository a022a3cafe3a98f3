"""Datagrams made by hand, by somebody who means no good: both ends must not care.

At the answering end they bring nobody a byte, at the asking end they change no number of a
row; and the honest transfer beside them goes on.
"""

import asyncio
import contextlib
import os
import socket
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from garfield.core.errors import ConfigError
from garfield.core.silence import Reason, Silence
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Key, NotYet, Ready, all_of
from garfield.transport.datagrams.client import Transfer
from garfield.transport.datagrams.client import _connect as connect
from garfield.transport.datagrams.links import TRIES, LossyLinks
from garfield.transport.datagrams.packets import (
    HOST_BLOCK,
    LARGEST,
    Offer,
    Seal,
    Window,
    nothing_came,
)
from garfield.transport.datagrams.server import DatagramServer
from garfield.transport.grpc.carriers import Chunks
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.grpc.wire import Flag
from garfield.transport.identity import PeerAddress

LINKS = LossyLinks(frozenset(["w"]), frozenset(["s"]))
KEY = Key("gradient", 4)
BLOCKS = 20
LENGTH = BLOCKS * HOST_BLOCK - 100
VECTOR = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
HERE = "ipv4:127.0.0.1:50000"  # as gRPC names who called
RANDOM = np.random.default_rng(7)


@contextlib.asynccontextmanager
async def answering():
    server = DatagramServer("w", LINKS)
    server.open("127.0.0.1:0")
    try:
        yield server
    finally:
        server.close()


class Asker:
    """A plain socket that sends what it likes to an answering end."""

    def __init__(self, port):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.connect(("127.0.0.1", port))

    async def gets(self, datagram, patience_s=0.1):
        """What comes back."""
        loop, came = asyncio.get_running_loop(), []
        if datagram is not None:
            self.socket.send(datagram)
        with contextlib.suppress(asyncio.TimeoutError):
            while True:
                came.append(await asyncio.wait_for(loop.sock_recv(self.socket, 65536), patience_s))
        return came


def opened(offer, datagrams):
    """Block numbers and bytes, as the one with the key reads them."""
    seal = Seal(offer.session, offer.key)
    return dict(seal.open_block(memoryview(datagram)) for datagram in datagrams)


def whole(block):
    return VECTOR.tobytes()[4 * HOST_BLOCK * block : 4 * HOST_BLOCK * (block + 1)]


def with_session(play, *, peer=HERE):
    """Run `play(server, offer, asker)` against an open session."""

    async def scene():
        async with answering() as server:
            with server.session("s", KEY, memoryview(VECTOR.tobytes()), peer) as offer:
                asker = Asker(offer.port)
                try:
                    return await play(server, offer, asker)
                finally:
                    asker.socket.close()

    return asyncio.run(scene())


def test_whoever_has_the_key_gets_the_blocks_that_it_asks_for():
    async def play(server, offer, asker):
        seal = Seal(offer.session, offer.key)
        first = await asker.gets(seal.request(0, Window(2, 3)))
        assert opened(offer, first) == {at: whole(at) for at in (2, 3, 4)}
        last = await asker.gets(seal.request(1, Window(BLOCKS - 1, 8)))
        assert opened(offer, last) == {BLOCKS - 1: whole(BLOCKS - 1)}  # and nothing beyond the end

    with_session(play)


def bad_requests(offer):
    """By name: datagrams that must bring nothing, though some come from who has the key."""
    seal, other = Seal(offer.session, offer.key), Seal(offer.session, os.urandom(16))
    good = seal.request(5, Window(0, 1))
    changed = {at: bytearray(good) for at in range(len(good))}
    for at, datagram in changed.items():
        datagram[at] ^= 0x40
    return {
        "sealed with another key": other.request(5, Window(0, 1)),
        "of another session": Seal(os.urandom(8), offer.key).request(5, Window(0, 1)),
        "a window beyond the limit": seal.request(5, Window(0, 9)),
        "a huge window": seal.request(6, Window(0, 65535)),
        "a window far beyond the end": seal.request(7, Window(2**32 - 1, 8)),
        "a block instead of a request": seal.block(5, memoryview(b"123456")),
        "empty": b"",
        "one byte": b"G",
        "cut": good[:-1],
        "lengthened": good + b"x",
        "garbage": RANDOM.bytes(60),
        "long garbage": RANDOM.bytes(60_000),
        "garbage with the right beginning": good[:17] + RANDOM.bytes(22),
        **{f"changed at byte {at}": bytes(datagram) for at, datagram in changed.items()},
    }


def test_a_request_that_is_wrong_in_any_way_brings_nothing():
    async def play(server, offer, asker):
        bad = bad_requests(offer)
        for datagram in bad.values():
            asker.socket.send(datagram)
        assert await asker.gets(None, 0.3) == []
        assert server.bytes_sent == 0
        assert server.dropped == len(bad)
        good = await asker.gets(Seal(offer.session, offer.key).request(10, Window(0, 1)))
        assert opened(offer, good) == {0: whole(0)}

    with_session(play)


def test_a_request_that_was_recorded_brings_nothing_the_second_time():
    async def play(server, offer, asker):
        seal = Seal(offer.session, offer.key)
        older, newer = seal.request(0, Window(0, 1)), seal.request(1, Window(1, 1))
        assert len(await asker.gets(newer)) == 1
        for replayed in (newer, older, newer):
            assert await asker.gets(replayed) == []

    with_session(play)


def test_nobody_is_sent_anything_at_an_address_that_did_not_call():
    """A request recorded on the way and sent in a third machine's name floods nobody."""

    async def play(server, offer, asker):
        seal = Seal(offer.session, offer.key)
        assert await asker.gets(seal.request(0, Window(0, 8))) == []
        assert server.bytes_sent == 0

    with_session(play, peer="ipv4:10.1.2.3:50000")
    with_session(play, peer="ipv6:[fd00::1]:50000")


def test_a_session_sends_no_more_than_a_few_times_its_vector():
    async def play(server, offer, asker):
        seal, came = Seal(offer.session, offer.key), 0
        for number in range(100):
            came += len(await asker.gets(seal.request(number, Window(0, 8)), 0.02))
        assert came == TRIES * 8

    with_session(play)


def test_a_session_ends_with_its_call():
    async def scene():
        async with answering() as server:
            with server.session("s", KEY, memoryview(VECTOR.tobytes()), HERE) as offer:
                pass
            asker = Asker(offer.port)
            request = Seal(offer.session, offer.key).request(0, Window(0, 8))
            assert await asker.gets(request) == []
            asker.socket.close()

    asyncio.run(scene())


# -- the asking end -------------------------------------------------------------------------------


def transferred(answer, *, seconds=2.0):
    """A transfer from a peer whose `answer(seal, window, address)` yields datagrams."""

    async def scene():
        loop = asyncio.get_running_loop()
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        peer.bind(("127.0.0.1", 0))
        peer.setblocking(False)
        offer = Offer(os.urandom(8), os.urandom(16), peer.getsockname()[1], HOST_BLOCK)
        seal = Seal(offer.session, offer.key)
        asker = await connect("127.0.0.1:1", offer.port)

        def receive():
            datagram, address = peer.recvfrom(LARGEST)
            _, window = seal.open_request(memoryview(datagram))
            for block in answer(seal, window, address):
                peer.sendto(block, address)

        loop.add_reader(peer, receive)
        row = np.full(LENGTH, -7, np.float32)
        transfer = Transfer(asker, offer, row)
        await transfer.run(loop.create_future(), loop.time() + seconds)
        loop.remove_reader(peer)
        peer.close()
        asker.close()
        return transfer, row

    return asyncio.run(scene())


def honest(seal, window, address):
    for at in range(window.first, window.first + window.size):
        yield seal.block(at, memoryview(whole(at)))


def test_an_honest_peer_s_row_arrives_whole():
    transfer, row = transferred(honest)
    assert not transfer.assembly.missing.any()
    np.testing.assert_array_equal(row, VECTOR)


def bad_blocks(seal, at):
    """What a liar on the way, or the peer itself, might send for block `at`."""
    evil = memoryview(np.full(HOST_BLOCK, 9e9, np.float32).tobytes())
    good = seal.block(at, evil)
    changed = bytearray(good)
    changed[40] ^= 1
    yield bytes(changed)
    yield good[:-1]
    yield good[:20]
    yield b""
    yield RANDOM.bytes(len(good))
    yield Seal(os.urandom(8), os.urandom(16)).block(at, evil)  # of another step, or sender
    yield seal.block(at, evil[:-4])  # the right key, the wrong size
    yield seal.block(at, memoryview(b""))
    yield seal.block(BLOCKS, evil)  # no such block
    yield seal.block(2**32 - 1, evil)
    yield seal.request(at, Window(0, 8))


def test_blocks_that_are_wrong_in_any_way_change_nothing():
    def answer(seal, window, address):
        for at in range(window.first, window.first + window.size):
            if at == 3:
                yield from bad_blocks(seal, at)
            else:
                yield seal.block(at, memoryview(whole(at)))

    transfer, row = transferred(answer)
    assert transfer.assembly.missing.tolist() == [at == 3 for at in range(BLOCKS)]
    assert transfer.dropped == 11
    hole = slice(3 * HOST_BLOCK, 4 * HOST_BLOCK)
    assert (row[hole] == -7).all()
    np.testing.assert_array_equal(np.delete(row, hole), np.delete(VECTOR, hole))


def test_a_block_that_comes_twice_counts_once_and_the_first_stays():
    def answer(seal, window, address):
        yield from honest(seal, window, address)
        for at in range(window.first, window.first + window.size - 1):
            yield seal.block(at, memoryview(np.zeros(HOST_BLOCK, np.float32).tobytes()))

    transfer, row = transferred(answer)
    assert not transfer.assembly.missing.any()
    np.testing.assert_array_equal(row, VECTOR)


def test_somebody_else_s_datagrams_do_not_even_get_in():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def answer(seal, window, address):
            at = window.first  # even with the key: the system knows where it came from
            stranger.sendto(seal.block(at, memoryview(bytes(4 * HOST_BLOCK))), address)
            stranger.sendto(b"garbage", address)
            return honest(seal, window, address)

        transfer, row = transferred(answer)
    assert transfer.dropped == 0
    np.testing.assert_array_equal(row, VECTOR)


def test_a_flood_of_garbage_ends_with_the_time_that_was_set():
    def answer(seal, window, address):
        return (RANDOM.bytes(500) for _ in range(200))

    began = time.monotonic()
    transfer, _ = transferred(answer, seconds=0.5)
    assert time.monotonic() - began < 3
    assert transfer.assembly.missing.all()


# -- the whole transport --------------------------------------------------------------------------


class Box:
    """Publishes one vector."""

    def __init__(self, vector=None):
        self.vector = vector

    def answer(self, asker, key):
        return NotYet() if self.vector is None else Ready(self.vector)

    def watch(self, wake):
        pass


@contextlib.contextmanager
def pair(links, vector, worker=None):
    """A server, and a worker, which may be made otherwise."""
    book, made = {}, []
    honest = partial(grpc_transport, links=links)
    for name, content, make in (("s", None, honest), ("w", vector, worker or honest)):
        transport = make(name, book)
        made.append(transport)
        transport.serve(Box(content))
        book[name] = PeerAddress(transport.address)
    try:
        yield made
    finally:
        for transport in made:
            transport.close()


def test_a_peer_of_which_no_datagram_comes_is_silent_in_time():
    nothing = LossyLinks(LINKS.workers, LINKS.servers, loss=0.999999)
    with pair(nothing, VECTOR) as (server, _):
        began = time.monotonic()
        replies = server.pull(["w"], KEY, length=LENGTH, until=all_of(["w"]), timeout_s=4)
        assert time.monotonic() - began < 5
    assert replies.names == ()
    assert replies.silent == {"w": nothing_came(BLOCKS)}


def test_a_worker_that_offers_datagrams_to_who_did_not_ask_for_them_is_not_followed():
    plain = LossyLinks(frozenset(["x"]), LINKS.servers)
    with pair(plain, VECTOR, partial(GrpcTransport, carriers=[Unasked()])) as (server, _):
        replies = server.pull(["w"], KEY, length=LENGTH, until=all_of(["w"]), timeout_s=4)
    assert replies.silent == {
        "w": Silence(Reason.GARBAGE, "answered in a way that nobody asked for")
    }


class Unasked(Chunks):
    """Answers who asked for chunks by an offer of datagrams."""

    async def send(self, answer, key, header, call):
        await call.write(replace(header, flags=Flag.DATAGRAMS).encode())
        return True


def test_a_port_that_is_taken_is_an_error_that_says_so():
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    holder.bind(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    taken = grpc_transport("w", {}, links=LINKS, listen=f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=rf"cannot have UDP port {port}.*[Ff]ree it"):
        taken.serve(Box())
    taken.close()
    holder.close()
