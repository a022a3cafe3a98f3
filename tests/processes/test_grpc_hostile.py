"""Peers that lie, stall, flood or die, in processes of their own, and one that must not care.

For each: the caller is back by its deadline, the honest peer's row is there, the reason is
kept, and memory stays within what was asked for. Run as a script, this file is the hostile peer.
"""

import asyncio
import gc
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from garfield.core.errors import ConfigError
from garfield.core.silence import Reason, Silence, no_answer
from garfield.transport.certs import add, load, make
from garfield.transport.contract import Key, NotYet, Ready, VectorKind, declare_kind, first
from garfield.transport.grpc import wire
from garfield.transport.grpc.options import METHOD, NAME_KEY, aio, grpc
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import PeerAddress

LENGTH = 1_000_000  # four chunks
TOTAL = 4 * LENGTH
SHORT_S = 2.0  # for what lasts until the deadline, whatever the deadline is
LONG_S = 60.0  # for what ends by itself: nobody waits for it, however busy the machine is
GRACE_S = 5.0  # on top of the deadline, on a busy machine
HONEST = np.random.default_rng(1).standard_normal(LENGTH).astype(np.float32)


# -- the hostile peer -----------------------------------------------------------------------------
# One server; the kind that is asked for chooses what it does.


def header(request, **changes):
    fields = {"status": wire.Status.READY, "step": request.key.step, "total": TOTAL} | changes
    return wire.Header(**fields).encode()


CHUNKS = list(wire.chunks(HONEST))
calls = 0


async def endless(request, call):
    await call.write(header(request))
    while True:
        await call.write(CHUNKS[0])


async def one_chunk_too_many(request, call):
    for message in (header(request), *CHUNKS, b"x"):
        await call.write(message)


async def empty_chunks(request, call):
    await call.write(header(request))
    while True:
        await call.write(b"")


async def tiny_chunks(request, call):
    await call.write(header(request))
    while True:
        await call.write(b"x")


async def huge_chunk(request, call):
    await call.write(header(request))
    await call.write(bytes(20_000_000))


async def short_end(request, call):
    for message in (header(request), *CHUNKS[:2]):
        await call.write(message)


async def no_end(request, call):
    for message in (header(request), *CHUNKS):
        await call.write(message)
    await asyncio.sleep(60)


async def stall(request, call):
    await call.write(header(request))
    await asyncio.sleep(60)


async def drip(request, call):
    await call.write(header(request))
    for chunk in CHUNKS:
        await asyncio.sleep(0.3 * SHORT_S)  # four of them are too many
        await call.write(chunk)


async def pauses(request, call):
    """Honest, and always as slow."""
    await call.write(header(request))
    await asyncio.sleep(0.5)
    for chunk in CHUNKS:
        await call.write(chunk)


async def silence(request, call):
    await asyncio.sleep(60)


async def nothing_and_ok(request, call):
    pass


async def garbage_header(request, call):
    await call.write(os.urandom(len(header(request))))


async def huge_header(request, call):
    await call.write(bytes(20_000_000))


async def huge_claim(request, call):
    await call.write(header(request, total=2**62))
    while True:
        await call.write(CHUNKS[0])


async def replayed_step(request, call):
    for message in (header(request, step=request.key.step - 1), *CHUNKS):
        await call.write(message)


async def far_future_step(request, call):
    for message in (header(request, step=2**61), *CHUNKS):
        await call.write(message)


async def gone_to_the_past(request, call):
    await call.write(header(request, status=wire.Status.GONE, step=request.key.step - 1))


async def gone_beyond_all(request, call):
    await call.write(header(request, status=wire.Status.GONE, step=2**63 - 1))


async def gone_far_ahead(request, call):
    await call.write(header(request, status=wire.Status.GONE, step=2**61))


async def half(request, call):
    for message in (header(request), *CHUNKS[:2]):
        await call.write(message)
    await asyncio.sleep(60)


async def honest(request, call):
    for message in (header(request), *CHUNKS):
        await call.write(message)


async def descriptor_unasked(request, call):
    await call.write(header(request, flags=wire.Flag.DESCRIPTOR))


async def compressed_bomb(request, call):
    call.set_compression(grpc.Compression.Gzip)
    await call.write(header(request))
    await call.write(bytes(20_000_000))


async def refuses_at_length(request, call):
    await call.abort(grpc.StatusCode.INTERNAL, "\x1b[31m" + "no \n" * 1000)


async def refuses_for_now(request, call):
    await call.abort(grpc.StatusCode.UNAVAILABLE, "come back later")


async def floods_metadata(request, call):
    await call.send_initial_metadata([(f"k{i}", "v" * 1000) for i in range(100)])
    await call.write(header(request))


async def sometimes(request, call):
    """Says nothing to every other question."""
    global calls
    calls += 1
    if calls % 2:
        await asyncio.sleep(60)
    await honest(request, call)


def announce(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve_lies():
    async def handle(message, context):
        request = wire.Request.decode(message)
        await globals()[request.key.kind](request, context)

    handler = grpc.unary_stream_rpc_method_handler(handle)
    service, method = METHOD.strip("/").split("/")
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 2**20)]
    server = aio.server(options=unlimited)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def flood(address, channels, calls_each, kind):
    """So many connections with so many calls each, none of them ever read."""
    opened = []
    for _ in range(channels):
        channel = aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        ask = channel.unary_stream(METHOD)
        for step in range(calls_each):
            message = wire.Request(Key(f"{kind}-{step % 50}", step), LENGTH).encode()
            opened.append(ask(message, timeout=600, metadata=((NAME_KEY, "mallory"),)))
        opened.append(channel)
    await asyncio.sleep(1)
    announce("flooding")
    await asyncio.sleep(60)


def frame(kind, stream, payload, flags=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def never_read(address, connections, calls_each):
    """By hand, since a library reads ahead: HTTP/2 that never makes room for an answer."""
    host, port = address.split(":")
    fields = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc", "grpc-timeout": "600S"}
    fields |= {NAME_KEY: "mallory"}
    pairs = ((name.encode(), value.encode()) for name, value in fields.items())
    headers = b"".join(b"\0%c%b%c%b" % (len(n), n, len(v), v) for n, v in pairs)
    opened = []
    for _ in range(connections):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, b""))
        for step in range(calls_each):
            message = wire.Request(Key("ready", step), LENGTH).encode()
            body = struct.pack(">BI", 0, len(message)) + message
            stream = 2 * step + 1
            connection.sendall(frame(1, stream, headers, flags=4) + frame(0, stream, body, flags=1))
        opened.append(connection)
    time.sleep(1)
    announce("flooding")
    time.sleep(60)


LIES = {
    "endless": "sent a chunk of|sent more than",
    "one_chunk_too_many": "sent more than 4000000 bytes",
    "empty_chunks": "sent a chunk of 0 bytes instead of 1048576",
    "tiny_chunks": "sent a chunk of 1 bytes instead of 1048576",
    "huge_chunk": "sent a message beyond the limit",
    "short_end": "sent 2097152 of 4000000 bytes",
    "stall": "stalled for 1 s, sent 0 of 4000000 bytes",
    "drip": r"sent \d+ of 4000000 bytes in 2 s",
    "silence": "no answer in 2 s",
    "nothing_and_ok": "garbage instead of a header",
    "garbage_header": "garbage instead of a header",
    "huge_header": "sent a message beyond the limit",
    "huge_claim": "sent 4611686018427387904 of 4000000 bytes",
    "replayed_step": "sent step 6.0 instead of 7.0",
    "far_future_step": "sent step 2305843009213693952.0 instead of 7.0",
    "gone_to_the_past": "says step 7 is gone, and to be at 6",
    "gone_beyond_all": "garbage instead of a header",
    "descriptor_unasked": "in a way that nobody asked for",
    "compressed_bomb": "compress|beyond the limit",
    "refuses_at_length": r"^internal: \?\[31mno \?no",
    "refuses_for_now": "unavailable: come back later",
    "floods_metadata": "metadata",
}
OTHERS = ["ready", "honest", "half", "sometimes", "gone_far_ahead", "no_end", "pauses"]
FLOODS = [f"{kind}-{number}" for kind in ("never", "ready") for number in range(50)]
for name in (*LIES, *OTHERS, *FLOODS):
    declare_kind(VectorKind(name))


def main(what, *arguments):
    if what == "never_read":
        address, connections, calls_each = arguments
        never_read(address, int(connections), int(calls_each))
    elif what == "lies":
        asyncio.run(serve_lies())
    else:
        address, channels, calls_each, kind = arguments
        asyncio.run(flood(address, int(channels), int(calls_each), kind))


# -- the ones who must not care -------------------------------------------------------------------


class Outbox:
    """The same vector for everybody under every key, except what is never there."""

    def __init__(self):
        self.askers = set()

    def answer(self, asker, key):
        self.askers.add(asker)
        return NotYet() if key.kind.startswith("never") else Ready(HONEST)

    def watch(self, wake):
        pass


@contextmanager
def hostile(*arguments):
    """A child that is hostile; its first line."""
    command = [sys.executable, __file__, *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture(autouse=True)
def no_complaints(caplog):
    """What peers do is kept as a reason, and is no error in anybody's log."""
    yield
    gc.collect(1)  # asyncio complains of a lost exception when it is collected; the old stay
    assert not [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


@pytest.fixture(scope="module")
def liar():
    with hostile("lies") as (_, address):
        yield address


@pytest.fixture
def book():
    return {}


@pytest.fixture
def start(book):
    """Start an honest node, in this process."""
    nodes = []

    def started(name, credentials=None, outbox=None):
        node = GrpcTransport(name, book, credentials=credentials)
        nodes.append(node)
        node.serve(outbox or Outbox())
        book[name] = PeerAddress(
            node.address, "node" if credentials is None else credentials.identity.role
        )
        return node

    yield started
    for node in nodes:
        node.close()


@contextmanager
def peak_growth_mb():
    """How far the memory of this process grows meanwhile, at its peak."""

    def megabytes(field):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024

    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak so far
    before, found = megabytes("VmRSS"), []
    yield found
    found.append(megabytes("VmHWM") - before)


def pull(node, peers, kind="ready", *, step=7, timeout_s=LONG_S, q=None):
    start = time.monotonic()
    until = first(len(peers) if q is None else q)
    replies = node.pull(peers, Key(kind, step), length=LENGTH, until=until, timeout_s=timeout_s)
    assert time.monotonic() - start < timeout_s + GRACE_S
    return replies


LASTS = dict.fromkeys(["stall", "drip", "silence", "refuses_for_now"], SHORT_S)
"""Lies that last until the deadline."""

NO_PROOF = {  # that a slow or broken link might look like, or that the peer itself says
    "stall", "drip", "silence", "compressed_bomb", "refuses_at_length", "refuses_for_now",
    "floods_metadata",
}  # fmt: skip


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lie, marks=[pytest.mark.heavy] if lie in LASTS and lie != "stall" else [])
        for lie in LIES
    ],
)
def test_a_lie_costs_the_liar_its_turn_and_nobody_else_anything(lie, liar, book, start):
    node = start("node-0")
    start("honest")
    book["liar"] = PeerAddress(liar)
    pull(node, ["honest"])  # buffers and connections are made once
    with peak_growth_mb() as growth:
        for _ in range(2):
            replies = pull(node, ["liar", "honest"], lie, timeout_s=LASTS.get(lie, LONG_S))
            assert replies.names == ("honest",)
            np.testing.assert_array_equal(replies.rows[0], HONEST)
            (silence,) = replies.silent.values()
            assert re.search(LIES[lie], silence.detail), silence
            assert silence.reason.proof == (lie not in NO_PROOF)
            assert silence.detail.isprintable()
            assert len(silence.detail) < 250
    assert growth[0] < 64, f"{growth[0]:.0f} MB for two rows of 4 MB"


def test_a_far_future_step_is_passed_on_as_a_claim(liar, book, start):
    node = start("node-0")
    book["liar"] = PeerAddress(liar)
    replies = pull(node, ["liar"], "gone_far_ahead")
    assert replies.gone == {"liar": 2**61}


@pytest.mark.heavy
def test_one_that_answers_every_other_time_counts_every_other_time(liar, book, start):
    node = start("node-0")
    start("honest")
    book["liar"] = PeerAddress(liar)
    found = [pull(node, ["liar", "honest"], "sometimes", timeout_s=SHORT_S).names for _ in range(4)]
    assert found == [("honest",), ("honest", "liar")] * 2


def test_a_vector_that_is_whole_counts_though_its_end_is_never_said(liar, book, start):
    """A peer on a busy machine may be slow to end its call: asked again, it is as slow again."""
    node = start("node-0")
    book["liar"] = PeerAddress(liar)
    wanted = Key("no_end", 7)
    replies = node.pull(
        ["liar"], wanted, length=LENGTH, until=first(1), timeout_s=LONG_S, stall_s=0.5
    )
    assert replies.names == ("liar",)
    assert replies.rows[0].nbytes == sum(map(len, CHUNKS))


def test_a_peer_that_pauses_as_long_every_time_is_heard_when_patience_has_grown(liar, book, start):
    """On a starved machine every message took a second: who allowed less asked for ever."""
    node = start("node-0")
    book["liar"] = PeerAddress(liar)
    replies = node.pull(
        ["liar"], Key("pauses", 7), length=LENGTH, until=first(1), timeout_s=LONG_S, stall_s=0.1
    )
    assert replies.names == ("liar",)


# -- dying, hanging, vanishing --------------------------------------------------------------------


@pytest.mark.heavy
def test_one_that_is_killed_in_the_middle_of_a_transfer_is_silent(book, start):
    node = start("node-0")
    start("honest")
    with hostile("lies") as (child, address):
        book["liar"] = PeerAddress(address)
        timer = threading.Timer(0.6, child.send_signal, [signal.SIGKILL])
        timer.start()
        replies = pull(node, ["liar", "honest"], "half", timeout_s=6)
        timer.join()
    assert replies.names == ("honest",)
    assert "connection" in replies.silent["liar"].detail


def test_one_that_is_frozen_is_silent_until_it_thaws(book, start):
    """Its system still acknowledges what it gets: the connection is half open."""
    node = start("node-0")
    start("honest")
    with hostile("lies") as (child, address):
        book["frozen"] = PeerAddress(address)
        pull(node, ["frozen"], "honest")
        child.send_signal(signal.SIGSTOP)
        replies = pull(node, ["frozen", "honest"], "honest", timeout_s=SHORT_S)
        assert replies.names == ("honest",)
        assert replies.silent == {"frozen": no_answer(SHORT_S)}
        child.send_signal(signal.SIGCONT)
        assert pull(node, ["frozen"], "honest").names == ("frozen",)


def mute(connection):
    time.sleep(3)


def babble(connection):
    with suppress(OSError):
        while True:
            connection.sendall(os.urandom(65536))


def claim_a_long_frame(connection):
    """Settings as they should be, then a frame that says to be longer than any may be."""
    with suppress(OSError):
        connection.sendall(frame(4, 0, b"") + b"\xff\xff\xff" + bytes(600))
        connection.recv(1 << 16)
        time.sleep(3)


def hang_up(connection):
    connection.close()


@pytest.mark.parametrize("behave", [mute, babble, claim_a_long_frame, hang_up])
def test_one_that_does_not_speak_the_protocol_is_silent(behave, book, start):
    node = start("node-0")
    start("honest")

    def accept():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=behave, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        book["raw"] = PeerAddress(f"127.0.0.1:{listener.getsockname()[1]}")
        with peak_growth_mb() as growth:
            replies = pull(node, ["raw", "honest"], timeout_s=SHORT_S)
        listener.shutdown(socket.SHUT_RDWR)
    assert replies.names == ("honest",)
    assert set(replies.silent) == {"raw"}
    assert not replies.silent["raw"].reason.proof  # whoever it is, it has not shown to be that peer
    assert growth[0] < 40


# -- askers that ask too much ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood",
    [("flood", 4, 2000, "never"), ("flood", 40, 50, "never"), ("flood", 20, 50, "ready")],
    ids=["thousands of polls", "many connections", "many questions"],
)
def test_one_that_floods_us_with_calls_is_held_to_its_turns(flood, book, start):
    assert while_flooded(flood, book, start) < 160  # what malloc keeps of megabyte chunks


def test_one_that_asks_and_never_reads_is_held_to_a_few_chunks(book, start):
    """1600 calls, each of which could hold a chunk or two."""
    assert while_flooded(("never_read", 100, 16), book, start) < 100


def while_flooded(flood, book, start):
    """How much memory that takes, in MB; two other nodes find each other all the same."""
    what, *numbers = flood
    node, other = start("node-0"), start("node-1")
    book["mallory"] = PeerAddress("127.0.0.1:1")
    pull(other, ["node-0"])
    with peak_growth_mb() as growth, hostile(what, node.address, *numbers) as (_, line):
        assert line == "flooding"
        for _ in range(5):
            assert pull(other, ["node-0"]).names == ("node-0",)
            assert pull(node, ["node-1"]).names == ("node-1",)
    return growth[0]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (b"", {}),
        (b"GFq1", {}),
        (os.urandom(60), {}),
        (bytes(100_000_000), {}),
        (wire.Request(Key("ready", 1), 2**60).encode(), {}),
        (wire.Request(Key("ready", 1), LENGTH).encode(), {"timeout": None}),
        (wire.Request(Key("ready", 1), LENGTH).encode(), {"timeout": 1e6}),
        (wire.Request(Key("ready", 1), LENGTH).encode(), {"name": "stranger"}),
        (wire.Request(Key("ready", 1), LENGTH).encode(), {"name": "x" * 7000}),
    ],
    ids=["empty", "short", "random", "huge", "long", "no-deadline", "far", "stranger", "long-name"],
)
def test_a_malformed_question_gets_no_vector(message, options, book, start):
    node = start("node-0")
    book["mallory"] = PeerAddress("127.0.0.1:1")
    options = {"timeout": 5, "name": "mallory"} | options
    send = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(node.address, options=send) as channel:
        ask = channel.unary_stream(METHOD)
        metadata = ((NAME_KEY, options["name"]),)
        call = ask(message, timeout=options["timeout"], metadata=metadata)
        received = []
        with suppress(grpc.RpcError):
            received.extend(call)
    assert sum(map(len, received)) < 100
    assert pull(start("node-1"), ["node-0"]).names == ("node-0",)


def test_those_who_connect_and_say_nothing_leave_room_for_others(book, start):
    node = start("node-0")
    host, port = node.address.split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(300)]
    for connection in idle[::2]:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert pull(start("node-1"), ["node-0"]).names == ("node-0",)
    for connection in idle:
        connection.close()


def test_a_port_in_use_is_an_error_and_leaves_nothing(book, start):
    node = start("node-0")
    late = GrpcTransport("node-1", book, listen=node.address)
    with pytest.raises(ConfigError, match="Cannot listen on"):
        late.serve(Outbox())
    late.close()
    assert pull(start("node-2"), ["node-0"]).names == ("node-0",)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "example.org:0"])
def test_names_are_not_taken_on_trust_beyond_this_host(listen, book):
    with pytest.raises(ConfigError, match="insecure_ok=True"):
        GrpcTransport("node-0", book, listen=listen)


def test_unless_told_so_in_so_many_words(book):
    node = GrpcTransport("node-0", book, listen="0.0.0.0:0", insecure_ok=True)
    node.serve(Outbox())
    assert node.address.startswith("0.0.0.0:")
    node.close()


# -- posing as somebody else ----------------------------------------------------------------------

ANOTHER = Silence(Reason.WRONG_CERTIFICATE, "its certificate names another")
STRANGER = Silence(Reason.FOREIGN_CERTIFICATE, "its certificate is not from our authority")
EXPIRED = Silence(Reason.EXPIRED_CERTIFICATE, "its certificate has expired")
TOO_EARLY = Silence(Reason.EXPIRED_CERTIFICATE, "its certificate is not yet valid by our clock")
NO_TLS = Silence(Reason.NO_CERTIFICATE, "what listens there does not speak TLS")
NODES = {"server-0": "server", "server-1": "server", "worker-3": "worker"}


@pytest.fixture
def credentials(tmp_path):
    """Of every node, made once per authority."""
    make(tmp_path / "ours", NODES)
    make(tmp_path / "ours-with-other-roles", dict.fromkeys(NODES, "worker"))
    return lambda name, authority="ours": load(tmp_path / authority, name)


def test_honest_nodes_know_each_other_by_their_certificates(credentials, book, start):
    box = Outbox()
    start("server-0", credentials("server-0"), box)
    worker = start("worker-3", credentials("worker-3"))
    assert pull(worker, ["server-0"]).names == ("server-0",)
    assert box.askers == {"worker-3"}


def test_nobody_can_answer_in_the_name_of_another(credentials, book, start):
    node = start("server-1", credentials("server-1"))
    start("worker-3", credentials("worker-3"))
    book["server-0"] = book["worker-3"]._replace(role="server")
    replies = pull(node, ["server-0", "worker-3"], timeout_s=SHORT_S)
    assert replies.names == ("worker-3",)
    assert replies.silent == {"server-0": ANOTHER}


def test_the_right_name_with_the_wrong_role_is_somebody_else(credentials, book, start):
    roles = "ours-with-other-roles"
    node = start("server-1", credentials("server-1", roles))
    start("server-0", credentials("server-0", roles))
    book["server-0"] = book["server-0"]._replace(role="server")
    replies = pull(node, ["server-0"], timeout_s=SHORT_S)
    assert replies.silent == {"server-0": ANOTHER}


def test_nobody_can_ask_in_the_wrong_role(credentials, book, start):
    box = Outbox()
    start("server-0", credentials("server-0"), box)
    asker = start("worker-3", credentials("worker-3"))
    book["worker-3"] = book["worker-3"]._replace(role="server")
    replies = pull(asker, ["server-0"], timeout_s=SHORT_S)
    assert "not known" in replies.silent["server-0"].detail
    assert not box.askers


def test_nobody_can_ask_in_the_name_of_another(credentials, book, start):
    box = Outbox()
    node = start("server-0", credentials("server-0"), box)
    start("server-1", credentials("server-1"))
    start("worker-3", credentials("worker-3"))
    own = credentials("worker-3")
    secured = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    options = [("grpc.ssl_target_name_override", "server-0.server.garfield")]
    with grpc.secure_channel(node.address, secured, options=options) as channel:
        message = wire.Request(Key("ready", 1), 5).encode()
        metadata = ((NAME_KEY, "server-1"),)
        list(channel.unary_stream(METHOD)(message, timeout=5, metadata=metadata))
    assert box.askers == {"worker-3"}


def test_another_authority_is_trusted_by_neither_side(credentials, book, start):
    box = Outbox()
    start("server-0", credentials("server-0"), box)
    stranger = start("server-1", credentials("server-1", "ours-with-other-roles"))
    book["server-1"] = book["server-1"]._replace(role="server")
    replies = pull(stranger, ["server-0"], timeout_s=SHORT_S)
    assert replies.silent == {"server-0": STRANGER}
    assert not box.askers


def test_without_a_certificate_there_is_no_answer(credentials, book, start):
    box = Outbox()
    node = start("server-0", credentials("server-0"), box)
    book["worker-3"] = PeerAddress("127.0.0.1:1", "worker")
    plain = GrpcTransport("worker-3", book)
    replies = pull(plain, ["server-0"], timeout_s=SHORT_S)
    plain.close()
    assert set(replies.silent) == {"server-0"}
    ours = grpc.ssl_channel_credentials(credentials("worker-3").authority)
    options = [("grpc.ssl_target_name_override", "server-0.server.garfield")]
    with grpc.secure_channel(node.address, ours, options=options) as channel:
        message = wire.Request(Key("ready", 1), LENGTH).encode()
        with pytest.raises(grpc.RpcError):
            list(channel.unary_stream(METHOD)(message, timeout=3))
    assert not box.askers


@pytest.mark.parametrize(
    ("from_days", "to_days", "why"),
    [(-9, -4, EXPIRED), (2, 5, TOO_EARLY)],
    ids=["expired", "not yet valid"],
)
def test_a_certificate_holds_in_its_time_only(from_days, to_days, why, tmp_path, book, start):
    now = datetime.now(timezone.utc)
    make(tmp_path, {"server-1": "server"}, valid_days=30, now=now - timedelta(days=10))
    then = now + timedelta(days=from_days)
    add(tmp_path, {"server-0": "server"}, valid_days=to_days - from_days, now=then)
    node = start("server-1", load(tmp_path, "server-1"))
    start("server-0", load(tmp_path, "server-0", now=then))
    replies = pull(node, ["server-0"], timeout_s=SHORT_S)
    assert replies.silent == {"server-0": why}


def test_one_that_shows_no_certificate_is_told_apart(credentials, book, start):
    node = start("server-1", credentials("server-1"))
    start("server-0")
    book["server-0"] = book["server-0"]._replace(role="server")
    replies = pull(node, ["server-0"], timeout_s=SHORT_S)
    assert replies.silent == {"server-0": NO_TLS}


@pytest.mark.parametrize("why", [ANOTHER, STRANGER, EXPIRED, TOO_EARLY, NO_TLS], ids=str)
def test_who_listens_in_a_nodes_place_proves_nothing_of_that_node(why):
    assert not why.reason.proof
    assert not why.reason.blameless  # it still is not heard, and that is told


if __name__ == "__main__":
    main(*sys.argv[1:])
