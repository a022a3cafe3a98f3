"""Gradients by UDP: what is lost, what is filled, and the same as in simulation.

Run as a script, this file pulls over whatever links there are, and prints what came: so it runs
inside a network namespace where packets are really dropped.
"""

import contextlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from garfield.testing.network import eventually
from garfield.transport.certs import load, make
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Holes, Key, Ready, all_of
from garfield.transport.datagrams.links import FILLS, LossyLinks
from garfield.transport.datagrams.packets import HOST_BLOCK, blocks_of
from garfield.transport.datagrams.wrapper import LossyTransport
from garfield.transport.identity import PeerAddress
from garfield.transport.simulated import Simulation

NAMES = ("server-0", "worker-0", "worker-1", "worker-2", "worker-3")
LOSSY = frozenset(["worker-0", "worker-1", "worker-2"])
LENGTH = 100_000  # 49 blocks
STEPS = 3
NAMESPACE = ["unshare", "-rn"]


def vector(name, step):
    seed = [NAMES.index(name), step]
    return np.random.default_rng(seed).standard_normal(LENGTH).astype(np.float32)


class Box:
    """Has everything at once."""

    def __init__(self, name):
        self.name = name

    def answer(self, asker, key):
        return Ready(vector(self.name, key.step))

    def watch(self, wake):
        pass


def links(**changes):
    return LossyLinks(LOSSY, frozenset(["server-0"]), **changes)


@contextlib.contextmanager
def cluster(lossy, *, listen="127.0.0.1:0", certificates=None):
    book, made = {}, {}
    for name in NAMES:
        credentials = load(certificates, name) if certificates else None
        made[name] = grpc_transport(
            name, book, links=lossy, listen=listen, credentials=credentials, insecure_ok=True
        )
        made[name].serve(Box(name))
        book[name] = PeerAddress(made[name].address, name.partition("-")[0])
    try:
        yield made
    finally:
        for transport in made.values():
            transport.close()


def gradients(server, steps=STEPS):
    """Copies of what each step brought, with the holes."""
    for step in range(steps):
        replies = server.pull(
            NAMES[1:], Key("gradient", step), length=LENGTH, until=all_of(NAMES[1:]), timeout_s=20
        )
        assert not replies.silent
        yield np.stack(replies.rows), replies.holes


def simulated(lossy):
    simulation, found = Simulation(), []
    for name in NAMES[1:]:
        simulation.transport(name).serve(Box(name))
    server = LossyTransport(simulation.transport("server-0"), lossy)
    simulation.spawn(lambda: found.extend(gradients(server)))
    simulation.run()
    return found


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.1, 0.3])
def test_sockets_and_simulation_lose_the_same_and_fill_it_with_the_same(fill, loss):
    lossy = links(fill=fill, loss=loss, seed=5)
    with cluster(lossy) as made:
        real = list(gradients(made["server-0"]))
    for (rows, holes), (expected, expected_holes) in zip(real, simulated(lossy), strict=True):
        assert set(holes) == set(expected_holes) <= LOSSY
        for name in holes:
            np.testing.assert_array_equal(holes[name].missing, expected_holes[name].missing)
        np.testing.assert_array_equal(rows, expected)
    lost = [holes[name].missing.mean() for _, holes in real for name in holes]
    assert (len(lost) > 0) == (loss > 0)


def test_where_nothing_is_lost_rows_are_as_published_and_elsewhere_holes_say_where():
    with cluster(links(fill="zeros", loss=0.2)) as made:
        for step, (rows, holes) in enumerate(gradients(made["server-0"])):
            for name, row in zip(NAMES[1:], rows, strict=True):
                none = Holes(np.zeros(blocks_of(LENGTH, HOST_BLOCK), bool), HOST_BLOCK)
                lost = holes.get(name, none).missing_values(LENGTH)
                assert lost.any() == (name in LOSSY)
                np.testing.assert_array_equal(row[~lost], vector(name, step)[~lost])
                assert not row[lost].any()


def test_with_certificates_it_is_the_same(tmp_path):
    make(tmp_path, {name: name.partition("-")[0] for name in NAMES})
    lossy = links(loss=0.1)
    with cluster(lossy, certificates=tmp_path) as made:
        real = list(gradients(made["server-0"]))
    for (rows, _), (expected, _) in zip(real, simulated(lossy), strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_models_come_by_datagrams_only_if_so_chosen():
    for models in (False, True):
        with cluster(links(loss=0.5, models=models, fill="zeros")) as made:
            for worker in NAMES[1:]:
                replies = made[worker].pull(
                    ["server-0"], Key("model", 1), length=LENGTH, until=all_of(["server-0"]),
                    timeout_s=20,
                )  # fmt: skip
                assert bool(replies.holes) == (models and worker in LOSSY)


def test_what_an_attacker_reads_of_others_is_not_damaged():
    with cluster(links(loss=0.3)) as made:
        replies = made["worker-3"].pull(
            ["worker-0"], Key("gradient", 1), length=LENGTH, until=all_of(["worker-0"]),
            timeout_s=20,
        )  # fmt: skip
        np.testing.assert_array_equal(replies.rows[0], vector("worker-0", 1))


def test_bytes_by_datagrams_are_counted_where_they_are_sent_and_where_they_come():
    with cluster(links()) as made:
        list(gradients(made["server-0"], 1))
        assert made["server-0"].bytes_received == 4 * 4 * LENGTH
        assert eventually(lambda: made["worker-0"].bytes_sent > 4 * LENGTH)  # with seals
        assert eventually(lambda: made["worker-3"].bytes_sent == 4 * LENGTH)


# -- packets that are really dropped --------------------------------------------------------------

DROP = """
ip link set lo up && ip addr add 10.9.9.1/32 dev lo &&
nft add table inet lossy &&
nft add chain inet lossy incoming '{ type filter hook input priority 0; }' &&
nft add rule inet lossy incoming numgen random mod 100 '<' 10 drop &&
exec "$@"
"""


def dropping():
    """Why packets cannot be dropped here; None if they can."""
    for program in ("unshare", "ip", "nft"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    done = subprocess.run([*NAMESPACE, "sh", "-c", DROP, "sh", "true"], capture_output=True)
    return f"no namespace for us: {done.stderr.decode().strip()}" if done.returncode else None


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "10.9.9.1"])  # long blocks, and those for hosts
def test_on_a_link_that_really_drops_a_tenth_a_tenth_is_filled_and_nothing_else_is_harmed(host):
    why = dropping()
    if why is not None:
        pytest.skip(why)
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", DROP, "sh", sys.executable, __file__, host],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == 0
    assert told["steps"] == 10
    assert 0.03 < told["lost"] < 0.25
    assert told["lossy"] == sorted(LOSSY)


def main(host):
    """Ten rounds; what was lost, and whether all that came is right."""
    lost, wrong, names = [], 0, set()
    with cluster(links(fill="zeros"), listen=f"{host}:0") as made:
        rounds = list(gradients(made["server-0"], 10))
    for step, (rows, holes) in enumerate(rounds):
        names |= set(holes)
        for name, row in zip(NAMES[1:], rows, strict=True):
            missing = np.zeros(LENGTH, bool)
            if name in holes:
                missing = holes[name].missing_values(LENGTH)
                lost.append(missing.mean())
            wrong += int((row != np.where(missing, 0, vector(name, step))).sum())
    told = {"lost": float(np.mean(lost)), "wrong": wrong, "steps": len(rounds)}
    sys.stdout.write(json.dumps({**told, "lossy": sorted(names)}))


if __name__ == "__main__":
    main(sys.argv[1])
