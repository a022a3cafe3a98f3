"""Strangers and liars that hold connections, and newcomers who must get in all the same.

Run as a script, this file is the attacker: it opens connections, and opens each anew that was
ended. It says "ready" once as many are open as it wants, or some have been ended before that.
"""

import asyncio
import selectors
import socket
import ssl
import subprocess
import sys
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from garfield.transport.certs import load, make
from garfield.transport.contract import Key, NotYet, Ready, VectorKind, declare_kind, first
from garfield.transport.grpc import wire
from garfield.transport.grpc.options import METHOD, aio, grpc
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import PeerAddress

HELD = 520  # more than the 512 that used to lock everybody out
LENGTH = 5
ROW = np.arange(LENGTH, dtype=np.float32)
WORKERS = [f"worker-{i}" for i in range(6)]
NODES = {"server-0": "server"} | dict.fromkeys(WORKERS, "worker")
declare_kind(VectorKind("never"))


# -- the attacker ---------------------------------------------------------------------------------


def announce(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hold(address, count, wrapped=lambda connection: connection):
    """Hold so many connections that say nothing; each that is ended is opened anew."""
    host, port = address.split(":")
    selector, said = selectors.DefaultSelector(), False
    while True:
        with suppress(OSError):
            while len(selector.get_map()) < count:
                connection = wrapped(socket.create_connection((host, int(port))))
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
        if not said:
            announce("ready")
            said = True
        for key, _ in selector.select(0.05):
            with suppress(ssl.SSLWantReadError, BlockingIOError):
                try:
                    if key.fileobj.recv(4096):
                        continue
                except ssl.SSLWantReadError:
                    raise
                except OSError:
                    pass
                selector.unregister(key.fileobj)
                key.fileobj.close()


def hold_with_certificate(address, count, certificates, name):
    """Hold so many connections of one certificate that never ask for anything."""
    context = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    context.load_cert_chain(f"{certificates}/{name}.pem", f"{certificates}/{name}.key")
    context.set_alpn_protocols(["h2"])

    def wrapped(connection):
        secured = context.wrap_socket(connection, server_hostname="server-0.server.garfield")
        secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        return secured

    hold(address, count, wrapped)


async def ask_on_each(address, count, certificates, name):
    """Hold so many connections of one certificate, with a call on each when it is made."""
    own = load(certificates, name)
    secured = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    options = [
        ("grpc.ssl_target_name_override", "server-0.server.garfield"),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    asked = 0

    async def keep_asking():
        nonlocal asked
        async with aio.secure_channel(address, secured, options=options) as channel:
            while True:
                ask = channel.unary_stream(METHOD)
                with suppress(aio.AioRpcError):
                    await ask(wire.Request(Key("never", 1), LENGTH).encode(), timeout=600).read()
                asked += 1
                if asked == count:
                    announce("ready")
                while channel.get_state() == grpc.ChannelConnectivity.READY:
                    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                await asyncio.sleep(0.5)

    await asyncio.wait([asyncio.ensure_future(keep_asking()) for _ in range(count)])


def attack(what, address, count, *more):
    if what == "ask":
        asyncio.run(ask_on_each(address, int(count), *more))
    elif what == "certified":
        hold_with_certificate(address, int(count), *more)
    else:
        hold(address, int(count))


# -- the ones who must not care -------------------------------------------------------------------


class Outbox:
    def answer(self, asker, key):
        return NotYet() if key.kind == "never" else Ready(ROW)

    def watch(self, wake):
        pass


@contextmanager
def attacked(*arguments):
    command = [sys.executable, __file__, *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline().strip() == "ready"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def book():
    return {name: PeerAddress("127.0.0.1:1", role) for name, role in NODES.items()}


@pytest.fixture
def start(tmp_path, book):
    """Start a node with its certificate, in this process."""
    make(tmp_path, NODES)
    nodes = []

    def started(name):
        node = GrpcTransport(name, book, credentials=load(tmp_path, name))
        nodes.append(node)
        node.serve(Outbox())
        book[name] = PeerAddress(node.address, NODES[name])
        return node

    yield started
    for node in nodes:
        node.close()


def pull(node, timeout_s):
    return node.pull(
        ["server-0"], Key("model", 7), length=LENGTH, until=first(1), timeout_s=timeout_s
    )


ATTACKS = {  # and how long newcomers try: gRPC by itself ended the first after 10 s, others never
    "sockets that say nothing": ("plain", 8.0),
    "a worker's certificate, idle": ("certified", 30.0),
    "a worker's certificate, asking": pytest.param("ask", 30.0, marks=pytest.mark.heavy),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "timeout_s"), ATTACKS.values(), ids=ATTACKS)
def test_hundreds_of_held_connections_lock_no_newcomer_out(kind, timeout_s, tmp_path, start):
    server = start("server-0")
    certificate = [] if kind == "plain" else [tmp_path, "worker-5"]
    with attacked(kind, server.address, HELD, *certificate):
        heard = {name: pull(start(name), timeout_s) for name in WORKERS[:5]}
    silent = {name: str(reply.silent) for name, reply in heard.items() if not reply.names}
    assert not silent


if __name__ == "__main__":
    attack(*sys.argv[1:])
