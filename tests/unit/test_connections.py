"""Whose connections are ended, and whose are not."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from ipaddress import ip_address

import pytest

pytest.importorskip("grpc")

from garfield.transport.grpc.connections import (
    SHARE,
    STRANGER_S,
    Connection,
    Connections,
    surplus,
)
from garfield.transport.grpc.origin import Origin, origin

LOOK_S = 0.25
LOOKS = int(STRANGER_S / LOOK_S) + 2


def connection(host="10.0.0.9", name=None, unknown_s=0.0):
    return Connection(3, 4, Origin(ip_address(host), 5), name, unknown_s)


def test_a_peer_keeps_its_newest_connections_and_costs_nobody_else_any():
    of_one = [connection(name="worker-0") for _ in range(3 * SHARE)]
    of_another = [connection(name="worker-1") for _ in range(SHARE)]
    assert surplus([*of_another, *of_one], 10) == of_one[: 2 * SHARE]


def test_a_stranger_has_its_time_and_no_more():
    late, in_time = connection(unknown_s=STRANGER_S + 0.1), connection(unknown_s=STRANGER_S)
    assert surplus([in_time, late], 10) == [late]


def test_of_too_many_strangers_those_go_whose_host_holds_most_the_oldest_first():
    crowd = [connection("10.0.0.9") for _ in range(8)]
    newcomers = [connection("10.0.0.1"), connection("10.0.0.2")]
    ending = surplus([newcomers[0], *crowd, newcomers[1]], 6)
    assert set(ending) == set(crowd[:4])


def test_strangers_take_nothing_of_a_peers_share():
    peers = [connection(name=f"worker-{i}") for i in range(20)]
    strangers = [connection() for _ in range(5)]
    assert set(surplus([*peers, *strangers], 0)) == set(strangers)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_only_what_was_accepted_on_the_port_and_never_asked_is_ended(host):
    with ExitStack() as opened:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = opened.enter_context(socket.create_server((host, 0), family=family))
        port = listener.getsockname()[1]
        elsewhere = opened.enter_context(socket.create_server((host, 0), family=family))
        accepted, ours = [], []
        for to in (listener, listener, elsewhere):
            ours.append(opened.enter_context(socket.create_connection(to.getsockname()[:2])))
            accepted.append(opened.enter_context(to.accept()[0]))
        known, idle, other = ours
        connections = Connections(100)
        for look in range(LOOKS):
            if look == 1:
                address = known.getsockname()[:2]
                peer = f"ipv6:%5B{address[0]}%5D:" if ":" in host else f"ipv4:{address[0]}:"
                connections.identified(f"{peer}{address[1]}", "worker-0")
            assert connections.look(port, look * LOOK_S) == (2 if look == 0 else 1)
        idle.settimeout(10)
        assert idle.recv(1) == b""
        for each, its in ((known, accepted[0]), (other, accepted[2])):
            its.send(b"x")
            assert each.recv(1) == b"x"


def test_time_in_which_nobody_could_be_heard_does_not_count():
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        ours = opened.enter_context(socket.create_connection(listener.getsockname()))
        accepted = opened.enter_context(listener.accept()[0])
        connections = Connections(100)
        connections.look(listener.getsockname()[1], 0.0)
        connections.look(listener.getsockname()[1], 100.0)  # the loop stood still
        accepted.send(b"x")
        assert ours.recv(1) == b"x"


def test_a_later_connection_from_the_same_place_inherits_no_name():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connections = Connections(100)
        first = socket.create_connection(("127.0.0.1", port))
        place = first.getsockname()
        accepted, _ = listener.accept()
        connections.identified(f"ipv4:127.0.0.1:{place[1]}", "worker-0")
        assert connections.look(port, 0.0) == 0
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # no TIME_WAIT
        first.close()
        accepted.close()
        again = socket.create_connection(("127.0.0.1", port), source_address=place)
        accepted, _ = listener.accept()
        assert connections.look(port, 0.1) == 1
        again.close()
        accepted.close()


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "allowed"),
    [(256, 1024, 1024, 768), (64, 64, 64, 32), (1024, 20000, 20000, 4096)],
)
def test_the_limit_on_open_files_is_raised_as_far_as_it_goes(soft, hard, raised, allowed):
    code = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from garfield.transport.grpc.connections import allowed_connections\n"
        "print(allowed_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(allowed), str(raised)]


def test_the_far_end_is_read_from_what_grpc_says():
    assert origin("ipv4:10.0.0.2:51234") == Origin(ip_address("10.0.0.2"), 51234)
    assert origin("ipv6:%5B::ffff:10.0.0.2%5D:7") == Origin(ip_address("10.0.0.2"), 7)
    assert origin("unix:") is None
