"""Links that devices open: dialled twice, abused by either side, lost, and found again.

Run as a script, this file is a device that lies over its links, the kind that it is asked for
chooses how, or a server that abuses its devices.
"""

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from garfield.core.errors import ConfigError
from garfield.core.silence import Reason
from garfield.testing.network import eventually
from garfield.transport.certs import load, make
from garfield.transport.connect import connect
from garfield.transport.contract import Key, NotYet, Ready, Refused, VectorKind, declare_kind, first
from garfield.transport.grpc import wire
from garfield.transport.grpc.dialling import Dialling
from garfield.transport.grpc.links import END, MOST, _Held, check_not_refused, refusal
from garfield.transport.grpc.loop import LoopThread
from garfield.transport.grpc.options import LINK_METHOD, NAME_KEY, aio, grpc
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import DIALS_IN, PeerAddress

LENGTH = 1_000_000  # four chunks
TOTAL = 4 * LENGTH
SHORT_S, LONG_S = 2.0, 60.0
HONEST = np.random.default_rng(1).standard_normal(LENGTH).astype(np.float32)
CHUNKS = list(wire.chunks(HONEST))


# -- the device that lies -------------------------------------------------------------------------


def header(request, **changes):
    fields = {"status": wire.Status.READY, "step": request.key.step, "total": TOTAL} | changes
    return wire.Header(**fields).encode()


async def say(stream, *messages):
    for message in messages:
        await stream.write(message)


async def link_honest(request, stream):
    await say(stream, header(request), *CHUNKS, END)


async def link_endless(request, stream):
    await say(stream, header(request), *CHUNKS)
    while True:
        await say(stream, CHUNKS[0])


async def link_too_many(request, stream):
    await say(stream, header(request), *CHUNKS, b"x", END)


async def link_short(request, stream):
    await say(stream, header(request), *CHUNKS[:2], END)


async def link_tiny(request, stream):
    await say(stream, header(request), b"x")
    await asyncio.sleep(60)


async def link_huge(request, stream):
    await say(stream, header(request), bytes(20_000_000))


async def link_garbage(request, stream):
    await say(stream, os.urandom(len(header(request))), END)


async def link_nothing(request, stream):
    await say(stream, END)


async def link_old_step(request, stream):
    await say(stream, header(request, step=request.key.step - 1), *CHUNKS, END)


async def link_descriptor(request, stream):
    await say(stream, header(request, flags=wire.Flag.DESCRIPTOR), END)


async def link_refuses(request, stream):
    await say(stream, refusal(for_good=True) + os.urandom(100), END)


async def link_never_now(request, stream):
    await say(stream, refusal(for_good=False), END)


async def link_stalls(request, stream):
    await say(stream, header(request), CHUNKS[0])
    await asyncio.sleep(60)


async def link_silent(request, stream):
    await asyncio.sleep(60)


async def link_dies(request, stream):
    await say(stream, header(request), *CHUNKS[:2])
    stream.cancel()


LOST = r"connection lost|sent \d+ of 4000000 bytes in 2 s|no answer in 2 s|has not dialled in"
"""It is asked again until the deadline, and may be lost, or being asked, when that comes."""
LIES = {
    "link_endless": "sent more than 4000000 bytes",
    "link_too_many": "sent more than 4000000 bytes",
    "link_short": "sent 2097152 of 4000000 bytes",
    "link_tiny": "sent a chunk of 1 bytes instead of 1048576",
    "link_huge": LOST,
    "link_garbage": "garbage instead of a header",
    "link_nothing": "garbage instead of a header",
    "link_old_step": "sent step 6.0 instead of 7.0",
    "link_descriptor": "in a way that nobody asked for",
    "link_refuses": "that is not for everybody",
    "link_never_now": LOST,
    "link_stalls": "stalled for .* s, sent 1048576 of 4000000 bytes",
    "link_silent": "no answer in 2 s",
    "link_dies": LOST,
}
LASTS = {"link_huge", "link_never_now", "link_stalls", "link_silent", "link_dies"}
"""What a slow or broken link might look like: it lasts until the deadline, and proves nothing."""
for name in (*LIES, "link_honest"):
    declare_kind(VectorKind(name))


async def lie(address, name, streams):
    options = [("grpc.max_send_message_length", -1)]
    channel = aio.insecure_channel(address, options=options)
    metadata = ((NAME_KEY, name),)

    async def one_link():
        while True:
            stream = channel.stream_stream(LINK_METHOD)(timeout=600, metadata=metadata)
            try:
                request = wire.Request.decode(await stream.read())
                await globals()[request.key.kind](request, stream)
                await stream.done_writing()
                await stream.code()
            except Exception:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(one_link() for _ in range(streams)))


@contextmanager
def lying_device(address, streams=MOST):
    command = [sys.executable, __file__, address, "liar", str(streams)]
    child = subprocess.Popen(command)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


# -- the ones who must not care -------------------------------------------------------------------


class Outbox:
    """One vector under every key, except what is never there and what is for nobody."""

    def __init__(self, vector=HONEST):
        self.vector, self.asked = vector, []

    def answer(self, asker, key):
        self.asked.append((asker, key))
        if key.kind == "aggregate":
            return Refused()
        return NotYet() if key.kind == "proposal" else Ready(self.vector)

    def watch(self, wake):
        pass


@pytest.fixture(autouse=True)
def no_complaints(caplog):
    """What peers do is kept as a reason, and is no error in anybody's log."""
    yield
    gc.collect(1)
    assert not [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


@pytest.fixture
def book():
    return {}


@pytest.fixture
def start(book):
    nodes = []

    def started(name, outbox=None, credentials=None, **how):
        node = GrpcTransport(name, book, credentials=credentials, **how)
        nodes.append(node)
        node.serve(outbox or Outbox())
        role = "node" if credentials is None else credentials.identity.role
        book[name] = PeerAddress(node.address, role)
        return node

    yield started
    for node in nodes:
        node.close()


@pytest.fixture
def server(start):
    return start("server-0", takes_links=True)


@pytest.fixture
def device(start, server):
    return start("device-0", listen=None, dials=["server-0"])


def pull(node, peers, kind="gradient", *, timeout_s=LONG_S, step=7, length=LENGTH):
    how = {"length": length, "until": first(len(peers)), "timeout_s": timeout_s}
    return node.pull(peers, Key(kind, step), **how)


def links_of(node, peer):
    return node._links.count(peer)


@pytest.fixture(scope="module")
def liars():
    """A server of its own for each module run would start a liar for each lie: one is enough."""
    book = {"liar": PeerAddress(DIALS_IN), "honest": PeerAddress(DIALS_IN)}
    server = GrpcTransport("server-0", book, takes_links=True)
    server.serve(Outbox())
    book["server-0"] = PeerAddress(server.address)
    honest = GrpcTransport("honest", book, listen=None, dials=["server-0"])
    honest.serve(Outbox())
    with lying_device(server.address):
        assert pull(server, ["honest", "liar"], "link_honest").names == ("honest", "liar")
        yield server
    honest.close()
    server.close()


@contextmanager
def peak_growth_mb():
    def megabytes(field):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024

    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak so far
    before, found = megabytes("VmRSS"), []
    yield found
    found.append(megabytes("VmHWM") - before)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lie, marks=[pytest.mark.heavy] if lie in LASTS - {"link_stalls"} else [])
        for lie in LIES
    ],
)
def test_a_lie_over_a_link_costs_the_liar_its_turn_and_nobody_else_anything(lie, liars):
    with peak_growth_mb() as growth:
        replies = pull(
            liars, ["honest", "liar"], lie, timeout_s=SHORT_S if lie in LASTS else LONG_S
        )
    assert replies.names == ("honest",)
    np.testing.assert_array_equal(replies.rows[0], HONEST)
    silence = replies.silent["liar"]
    assert re.search(LIES[lie], str(silence)), silence
    assert silence.reason.proof == (lie not in LASTS | {"link_refuses"})
    assert growth[0] < 40
    assert pull(liars, ["honest", "liar"], "link_honest").names == ("honest", "liar")


def test_a_device_that_dials_twice_has_one_voice(start, server, book):
    first_box, second_box = Outbox(), Outbox(np.zeros(LENGTH, np.float32))
    start("device-0", first_box, listen=None, dials=["server-0"])
    assert pull(server, ["device-0"]).names == ("device-0",)
    second = start("device-0", second_box, listen=None, dials=["server-0"])
    assert eventually(lambda: pull(server, ["device-0"]).rows[0][0] == 0.0)
    for _ in range(5):  # it stays so
        replies = pull(server, ["device-0", "device-0"])
        assert replies.names == ("device-0",)
        assert replies.rows[0][0] == 0.0
        assert links_of(server, "device-0") <= 2 * MOST  # some may be on their way out
    second.close()
    assert eventually(lambda: pull(server, ["device-0"]).rows[0][0] == HONEST[0])


def test_the_later_voice_stays_though_its_links_are_all_in_use():
    """Asked over its first link before it has opened more, it has none for a moment."""
    held, ended = _Held(), []

    class Opened:
        def cancel(self):
            ended.append(self)

    links = {}
    for connection in ("first", "second"):
        assert held.admits(connection, 1.0)
        links[connection] = Opened()
        held.opened(links[connection])
    assert ended == [links["first"]]
    for link in links.values():
        held.ended(link, 2.0)
    assert not held.admits("first", 2.5)
    assert held.admits("second", 2.5)
    assert held.admits("first", 3.5)  # the second stayed away


def test_one_that_opens_many_links_is_held_to_a_few(server, start, book):
    book["liar"] = PeerAddress(DIALS_IN)
    start("device-0", listen=None, dials=["server-0"])
    with lying_device(server.address, streams=500):
        assert pull(server, ["liar"], "link_honest").names == ("liar",)
        for _ in range(5):
            assert pull(server, ["device-0"]).names == ("device-0",)
            assert links_of(server, "liar") <= 2 * MOST
    assert eventually(lambda: links_of(server, "liar") == 0)


def test_a_server_gets_from_a_device_what_it_may_have_and_no_more(server, device):
    assert pull(server, ["device-0"]).names == ("device-0",)
    refused = pull(server, ["device-0"], "aggregate").silent["device-0"]
    assert (refused.reason, refused.reason.proof) == (Reason.REFUSED, False)
    wrong = pull(server, ["device-0"], length=LENGTH - 1).silent["device-0"]
    assert wrong.reason is Reason.WRONG_SIZE
    waits = pull(server, ["device-0"], "proposal", timeout_s=0.3).silent["device-0"]
    assert waits.reason is Reason.NO_ANSWER
    assert pull(server, ["device-0"]).names == ("device-0",)


def test_who_asks_is_known_to_the_device(start, server):
    box = Outbox()
    start("device-0", box, listen=None, dials=["server-0"])
    pull(server, ["device-0"])
    assert {asker for asker, _ in box.asked} == {"server-0"}


def test_a_device_that_is_called_may_not_dial(start, server, book):
    node = start("device-0", dials=["server-0"])  # it listens, too
    assert not book["device-0"].dials_in
    pull(node, ["server-0"])  # the connection is there
    assert pull(server, ["device-0"]).names == ("device-0",)
    assert links_of(server, "device-0") == 0


def test_a_device_that_never_dials_is_said_to_be_unreachable(server, book):
    book["device-0"] = PeerAddress(DIALS_IN)
    silence = pull(server, ["device-0"], timeout_s=0.2).silent["device-0"]
    assert (silence.reason, str(silence)) == (Reason.UNREACHABLE, "has not dialled in")


def test_a_server_that_takes_no_links_is_asked_as_ever(start, book):
    start("server-0")
    device = start("device-0", listen=None, dials=["server-0"])
    assert pull(device, ["server-0"]).names == ("server-0",)


def test_a_device_finds_its_server_again(start, server, device, book):
    assert pull(server, ["device-0"]).names == ("device-0",)
    listened = server.address
    server.close()
    again = start("server-0", takes_links=True, listen=listened)
    assert pull(again, ["device-0"]).names == ("device-0",)
    again.close()
    elsewhere = start("server-0", takes_links=True)  # on another port: the book says which
    assert pull(elsewhere, ["device-0"]).names == ("device-0",)


def test_who_listens_nowhere_takes_no_links(book):
    with pytest.raises(ConfigError, match="listens nowhere, so nobody can open a link"):
        GrpcTransport("device-0", book, listen=None, takes_links=True)


def test_nothing_but_a_refusal_is_one():
    for message in (b"", b"GF", b"GFa1....", aio.EOF, None):
        check_not_refused(message)


# -- a server that is hostile ---------------------------------------------------------------------


def tell(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve_hostile(abuse):
    """Print the address, then a line for every link; do to each what was asked for."""

    async def handle(messages, context):
        tell("link")
        with suppress(Exception):  # the device may leave at any moment
            await abuse(context)

    server = aio.server(options=[("grpc.max_send_message_length", -1)])
    service, method = LINK_METHOD.strip("/").split("/")
    handlers = {method: grpc.stream_stream_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    tell(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    await server.wait_for_termination()


@contextmanager
def hostile_server(abuse):
    """In a process of its own: a loop closed among ours leaves its events to our loops."""
    command = [sys.executable, __file__, "hostile", abuse.__name__]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child.stdout.readline().strip(), child.stdout
    finally:
        child.kill()
        child.communicate()


async def ends_at_once(context):
    pass


async def asks_nonsense(context):
    await context.write(b"nonsense")
    await context.read()


async def asks_at_length(context):
    await context.write(bytes(5_000_000))
    await context.read()


async def asks_for_what_it_may_not(context):
    await context.write(wire.Request(Key("aggregate", 7), LENGTH).encode())
    await context.read()


async def asks_and_never_reads(context):
    await context.write(wire.Request(Key("gradient", 7), LENGTH).encode())
    await asyncio.sleep(600)


@pytest.mark.parametrize(
    "abuse",
    [ends_at_once, asks_nonsense, asks_at_length, asks_for_what_it_may_not, asks_and_never_reads],
    ids=lambda abuse: abuse.__name__,
)
def test_a_hostile_server_costs_a_device_nothing(abuse, start, server, book):
    with hostile_server(abuse) as (address, links):
        book["hostile"] = PeerAddress(address)
        device = start("device-0", listen=None, dials=["hostile", "server-0"])
        assert [next(links) for _ in range(MOST)] == ["link\n"] * MOST
        for _ in range(3):
            assert pull(server, ["device-0"]).names == ("device-0",)
        assert pull(device, ["server-0"]).names == ("server-0",)


def test_links_that_end_unused_are_opened_again_ever_more_slowly(start, book, monkeypatch):
    pauses = []

    async def noted(self, seconds):
        pauses.append(seconds)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(Dialling, "_pause", noted)
    with hostile_server(ends_at_once) as (address, _):
        book["hostile"] = PeerAddress(address)
        start("device-0", listen=None, dials=["hostile"])
        assert eventually(lambda: len(pauses) >= 20 * MOST)
    assert max(pauses[:MOST]) <= 0.1
    assert max(pauses) <= 1.0
    assert min(pauses[15 * MOST : 20 * MOST]) >= 0.5
    assert len(set(pauses)) > MOST  # not all at once


# -- certificates ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    ours, theirs = tmp_path_factory.mktemp("certs"), tmp_path_factory.mktemp("others")
    roles = {"server-0": "server", "device-0": "device", "device-1": "device"}
    make(ours, roles)
    make(theirs, roles)
    return ours, theirs


@pytest.fixture
def secured(start, certificates, book):
    book |= {name: PeerAddress(DIALS_IN, "device") for name in ("device-0", "device-1")}
    return start("server-0", credentials=load(certificates[0], "server-0"), takes_links=True)


def test_a_device_is_who_its_certificate_says(start, secured, certificates, book):
    start("device-0", credentials=load(certificates[0], "device-0"), listen=None,
          dials=["server-0"])  # fmt: skip
    assert pull(secured, ["device-0"]).names == ("device-0",)
    assert "dialled" in str(pull(secured, ["device-1"], timeout_s=0.2).silent["device-1"])


def in_a_loop(work):
    """Not `asyncio.run`, which closes the loop while grpc may still have events for it."""

    async def nothing():
        pass

    loop = LoopThread("impostor")
    try:
        return loop.run(work)
    finally:
        loop.close(nothing())


@pytest.mark.parametrize("impostor", ["plain", "without", "foreign", "another"])
def test_nobody_else_opens_a_link_in_a_devices_name(impostor, secured, certificates):
    ours, theirs = certificates
    credentials = load(theirs if impostor == "foreign" else ours, "device-1")
    metadata = ((NAME_KEY, "device-0"),)

    async def dial():
        options = [("grpc.ssl_target_name_override", "server-0.server.garfield")]
        if impostor == "plain":
            channel = aio.insecure_channel(secured.address)
        else:
            authority = load(ours, "device-1").authority
            pair = (None, None) if impostor == "without" else (
                credentials.key, credentials.certificate
            )  # fmt: skip
            trusted = grpc.ssl_channel_credentials(authority, *pair)
            channel = aio.secure_channel(secured.address, trusted, options=options)
        async with channel:
            stream = channel.stream_stream(LINK_METHOD)(timeout=2, metadata=metadata)
            try:
                await stream.read()
            except aio.AioRpcError as problem:
                return problem.code()
            return None

    code = in_a_loop(dial())
    assert links_of(secured, "device-0") == 0
    if impostor == "another":  # it has a link, in its own name: nobody asked over it
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    else:
        assert code == grpc.StatusCode.UNAVAILABLE


def test_a_device_answers_no_server_without_the_servers_certificate(start, certificates, book):
    """Another server listens where its own should be: it is told nothing."""
    ours, theirs = certificates
    box = Outbox()
    false = start("server-0", credentials=load(theirs, "server-0"), takes_links=True)
    book["device-0"] = PeerAddress(DIALS_IN, "device")
    start("device-0", box, credentials=load(ours, "device-0"), listen=None, dials=["server-0"])
    book["device-0"] = PeerAddress(DIALS_IN, "device")
    assert pull(false, ["device-0"], timeout_s=1.0).names == ()
    assert box.asked == []


# -- by the front door ----------------------------------------------------------------------------


def test_nodes_that_dial_in_are_put_together_by_connect(certificates):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = {"server-0": address, "device-0": DIALS_IN, "device-1": DIALS_IN}
    opened = [connect(name, nodes, certificates=certificates[0]) for name in nodes]
    try:
        for transport in opened:
            transport.serve(Outbox())
        server, *devices = opened
        assert pull(server, ["device-0", "device-1"]).names == ("device-0", "device-1")
        for device in devices:
            assert pull(device, ["server-0"]).names == ("server-0",)
        others = pull(devices[0], ["device-1"], timeout_s=0.2)
        assert others.silent["device-1"].reason is Reason.UNREACHABLE
    finally:
        for transport in opened:
            transport.close()


if __name__ == "__main__":
    first_word, *rest = sys.argv[1:]
    if first_word == "hostile":
        asyncio.run(serve_hostile(globals()[rest[0]]))
    else:
        asyncio.run(lie(first_word, rest[0], int(rest[1])))
