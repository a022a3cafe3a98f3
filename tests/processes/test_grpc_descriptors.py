"""Long vectors between nodes of one host go as sealed memory; a bad descriptor is a lie."""

import asyncio
import fcntl
import os
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from garfield.core.errors import ConfigError
from garfield.core.silence import NOT_FINITE, Reason, Silence
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Key, Ready, first
from garfield.transport.grpc import wire
from garfield.transport.identity import PeerAddress
from garfield.transport.same_host import descriptors, memfd
from garfield.transport.same_host.carrier import SealedMemory

LENGTH = 300_000  # more than a chunk: worth a descriptor
ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def vector(seed, length=LENGTH):
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


class Outbox:
    def __init__(self, payload):
        self.payload = payload

    def answer(self, asker, key):
        return Ready(self.payload)

    def watch(self, wake):
        pass


@pytest.fixture
def start(tmp_path):
    book, nodes = {}, []

    def started(name, payload, same_host=tmp_path / "sockets"):
        node = grpc_transport(name, book, same_host=same_host)
        nodes.append(node)
        node.serve(Outbox(payload))
        book[name] = PeerAddress(node.address)
        return node

    yield started
    for node in nodes:
        node.close()


def pull(node, peer="b", step=1, length=LENGTH, timeout_s=5):
    return node.pull([peer], Key("model", step), length=length, until=first(1), timeout_s=timeout_s)


@contextmanager
def in_directory(path):
    """Sockets have short names only."""
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def sealed_memory():
    """Inodes of the sealed vectors that this process has mapped."""
    with open("/proc/self/maps") as maps:
        return {line.split()[4] for line in maps if "memfd:garfield" in line}


# -- how it goes ----------------------------------------------------------------------------------


def test_a_long_vector_is_mapped_and_a_short_one_sent(start):
    node = start("a", vector(0))
    start("b", vector(1))
    start("c", vector(2, 10))
    before = sealed_memory()
    long, short = pull(node), pull(node, "c", length=10)
    np.testing.assert_array_equal(long.rows[0], vector(1))
    np.testing.assert_array_equal(short.rows[0], vector(2, 10))
    assert len(sealed_memory() - before) == 1
    del long
    assert sealed_memory() == before


def test_all_askers_map_the_same_copy(start):
    askers = [start(name, vector(0)) for name in ("a", "c", "d")]
    start("b", vector(1))
    before = sealed_memory()
    replies = [pull(asker) for asker in askers]
    assert len(sealed_memory() - before) == 1
    assert len(replies) == 3


def test_memory_that_serves_another_key_later_is_not_taken_for_the_first(start):
    node = start("a", vector(0))
    ring = vector(1)
    start("b", ring)
    pull(node, step=1)
    ring[:] = vector(2)
    np.testing.assert_array_equal(pull(node, step=2).rows[0], vector(2))


def test_only_a_few_copies_are_kept(start):
    node = start("a", vector(0))
    start("b", vector(1))
    pull(node)
    files = len(os.listdir("/proc/self/fd"))
    for step in range(2, 30):
        pull(node, step=step)
    under_way = 4  # sockets of a pull that is being tidied away; 28 copies would show beyond them
    assert len(os.listdir("/proc/self/fd")) <= files + descriptors.KEPT + under_way


def test_a_peer_without_a_socket_here_sends_the_vector_itself(start, tmp_path):
    node = start("a", vector(0))
    start("b", vector(1), same_host=None)
    start("c", vector(2), same_host=tmp_path / "another host")
    assert pull(node, "b").names == ("b",)
    assert pull(node, "c").names == ("c",)


def test_a_number_that_is_not_finite_is_found_in_shared_memory_too(start):
    poisoned = vector(1)
    poisoned[-1] = np.nan
    node = start("a", vector(0))
    start("b", poisoned)
    assert pull(node).silent == {"b": NOT_FINITE}


def test_a_directory_that_others_can_enter_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        grpc_transport("a", {}, same_host=tmp_path / "open")


def test_a_directory_may_have_a_longer_name_than_a_socket(start, tmp_path):
    deep = tmp_path / ("long" * 30)
    node = start("a", vector(0), same_host=deep)
    start("b", vector(1), same_host=deep)
    before = sealed_memory()
    replies = pull(node)
    assert len(sealed_memory() - before) == 1
    assert replies.names == ("b",)


def test_the_socket_of_one_that_died_is_taken_over(start, tmp_path):
    (tmp_path / "sockets").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead, in_directory(tmp_path / "sockets"):
        dead.bind("b.descriptors")
    node = start("a", vector(0))
    start("b", vector(1))
    before = sealed_memory()
    replies = pull(node)
    assert len(sealed_memory() - before) == 1
    assert replies.names == ("b",)


# -- what must not be mapped ----------------------------------------------------------------------


def memory(size=4 * LENGTH, seals=ALL_SEALS, content=True):
    descriptor = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, size)
    if content:
        os.pwrite(descriptor, bytes(size), 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def plain_file(directory):
    path = directory / "vector"
    path.write_bytes(bytes(4 * LENGTH))
    return os.open(path, os.O_RDONLY)


LIES = {
    "a plain file": (plain_file, "no sealed memory"),
    "a directory": (lambda tmp: os.open(tmp, os.O_RDONLY), "no sealed memory"),
    "a pipe": (lambda tmp: os.dup(0), "no sealed memory"),
    "unsealed": (lambda tmp: memory(seals=0), "could still change"),
    "writable": (lambda tmp: memory(seals=ALL_SEALS & ~fcntl.F_SEAL_WRITE), "could still change"),
    "shrinkable": (lambda tmp: memory(seals=ALL_SEALS & ~fcntl.F_SEAL_SHRINK), "still change"),
    "not for good": (lambda tmp: memory(seals=ALL_SEALS & ~fcntl.F_SEAL_SEAL), "still change"),
    "too short": (lambda tmp: memory(4 * LENGTH - 4), "sent 1199996 of 1200000 bytes"),
    "too long": (lambda tmp: memory(4 * LENGTH + 4), "sent 1200004 of 1200000 bytes"),
    "huge": (lambda tmp: memory(2**40, content=False), "sent 1099511627776 of 1200000 bytes"),
    "holes": (lambda tmp: memory(content=False), "holes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_only_sealed_memory_of_the_right_size_is_mapped(lie, tmp_path):
    make, reason = LIES[lie]
    descriptor = make(tmp_path)
    try:
        with pytest.raises(wire.WireError, match=reason):
            memfd.mapped(descriptor, LENGTH)
    finally:
        os.close(descriptor)


def test_what_was_sealed_is_mapped_and_cannot_be_written():
    descriptor = asyncio.run(memfd.sealed(vector(1)))
    row = memfd.mapped(descriptor, LENGTH)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(descriptor, b"x", 0)
    with pytest.raises(OSError, match="not permitted"):
        os.truncate(descriptor, 0)
    os.close(descriptor)
    np.testing.assert_array_equal(row, vector(1))
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


# -- a hostile counter ----------------------------------------------------------------------------


def hang_up(visitor):
    pass


def say_nothing(visitor):
    time.sleep(3)


def chatter(visitor):
    visitor.sendall(b"no descriptor here" * 1000)


def hand_out_many(visitor):
    many = [memory(seals=0) for _ in range(20)]
    socket.send_fds(visitor, [b"!"], many)
    for descriptor in many:
        os.close(descriptor)


@contextmanager
def counter(path, behave):
    """In the place of an honest node's: it never looks at the ticket."""
    path.unlink()

    def serve():
        while True:
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            with visitor:
                visitor.recv(wire.TICKET)
                behave(visitor)

    with socket.socket(socket.AF_UNIX) as listener:
        with in_directory(path.parent):
            listener.bind(path.name)
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("behave", [hang_up, say_nothing, chatter, hand_out_many])
def test_where_no_descriptor_is_to_be_had_the_vector_is_sent(behave, start, tmp_path):
    node = start("a", vector(0))
    start("b", vector(1))
    pull(node, step=1)
    files = len(os.listdir("/proc/self/fd"))
    with counter(descriptors.socket_path(tmp_path / "sockets", "b"), behave):
        replies = pull(node, step=2)
    np.testing.assert_array_equal(replies.rows[0], vector(1))
    assert len(os.listdir("/proc/self/fd")) <= files + 1  # the copy for step 2


def test_a_bad_descriptor_is_silence(start, tmp_path):
    def bad(visitor):
        descriptor = memory(seals=0)
        socket.send_fds(visitor, [b"!"], [descriptor])
        os.close(descriptor)

    node = start("a", vector(0))
    start("b", vector(1))
    with counter(descriptors.socket_path(tmp_path / "sockets", "b"), bad):
        replies = pull(node)
    assert replies.silent == {
        "b": Silence(Reason.UNSAFE_MEMORY, "sent memory that it could still change")
    }


def test_a_wrong_ticket_gets_nothing_and_idle_visitors_keep_nobody_out(start, tmp_path):
    node = start("a", vector(0))
    start("b", vector(1))
    idle = [socket.socket(socket.AF_UNIX) for _ in range(100)]
    with in_directory(tmp_path / "sockets"):
        for visitor in idle:
            visitor.connect("b.descriptors")
    assert pull(node).names == ("b",)
    idle[0].settimeout(5)
    idle[0].sendall(bytes(wire.TICKET))
    assert idle[0].recv(1) == b""
    for visitor in idle:
        visitor.close()


def test_what_was_handed_over_is_counted_though_the_asker_leaves_at_once(tmp_path):
    """It cancels its call when it has the descriptor, maybe before whoever sent it looks again."""
    payload = vector(0)
    header = wire.Header(wire.Status.READY, 1, total=payload.nbytes)

    class LeavesAtOnce:
        async def write(self, message):
            _, used = memory._server._tickets[wire.Header.decode(message).ticket]
            used.set()
            asyncio.current_task().cancel()

    memory = SealedMemory("a", tmp_path / "sockets")

    async def main():
        memory.open("")
        sending = memory.send(Ready(payload), Key("model", 1), header, LeavesAtOnce())
        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(sending)
        await memory.close()

    asyncio.run(main())
    assert memory.bytes_sent == payload.nbytes


def test_a_vector_kept_in_sealed_memory_is_handed_on_as_it_is_and_goes_with_its_last_reader():
    vector = memfd.kept(np.arange(1000, dtype=np.float32))
    descriptor = memfd.descriptor_of(vector)
    np.testing.assert_array_equal(memfd.mapped(descriptor, 1000), np.arange(1000))
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1
    del vector
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert memfd.descriptor_of(np.ones(3, np.float32)) is None
