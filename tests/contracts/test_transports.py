"""One contract for every transport: a new one is tested by adding how its nodes join a network."""

import os
import threading
import time
from functools import partial

import numpy as np
import pytest

from garfield.core.errors import GarfieldError
from garfield.core.silence import NOT_FINITE, NOT_NEEDED, no_answer
from garfield.transport.certs import load, make
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Gone, Key, NotYet, Ready, all_of, first
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.datagrams.wrapper import LossyTransport
from garfield.transport.faults import Faults, LinkFault
from garfield.transport.identity import PeerAddress
from garfield.transport.simulated import Simulation

NAMES = tuple(f"worker-{i}" for i in range(6))
GRADIENT = Key("gradient", 7)
SOON_S = 8.0  # less than the deadline of a pull, and much for a machine that is busy otherwise


class Outbox:
    """What a node publishes, in its simplest form."""

    def __init__(self, answers=()):
        self.answers = dict(answers)
        self.asked = []
        self.wakes = []

    def answer(self, asker, key):
        self.asked.append((asker, key))
        return self.answers.get(key, NotYet())

    def watch(self, wake):
        self.wakes.append(wake)

    def publish(self, key, answer):
        self.answers[key] = answer if isinstance(answer, Gone | Ready) else Ready(answer)
        for wake in self.wakes:
            wake()


class Threads:
    """How a test's parts run side by side where transports have threads and a real clock."""

    def run(self, call):
        return call()

    def at_once(self, *calls):
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def later(self, delay_s, call):
        timer = threading.Timer(delay_s, call)
        timer.start()
        return timer.join

    def now_s(self):
        return time.monotonic()


class GrpcNetwork(Threads):
    """Nodes in one process that reach each other by gRPC, as if they were in many."""

    def __init__(self, directory, *, tls=False, unix=False, memory=False, by=grpc_transport):
        self.book = {}
        self.by = by
        self.directory = directory
        self.unix = unix
        self.tls = tls
        self.same_host = directory / "sockets" if memory else None
        if tls:
            make(directory / "certs", dict.fromkeys(NAMES, "worker"))

    def transport(self, name):
        listen = self.book[name].address if name in self.book else "127.0.0.1:0"
        if self.unix:
            listen = f"unix:{self.directory}/{name}.sock"
        credentials = load(self.directory / "certs", name) if self.tls else None
        return self.by(
            name, self.book, listen=listen, credentials=credentials, same_host=self.same_host
        )

    def join(self, transport):
        """After `serve`: let the others know."""
        self.book[transport.name] = PeerAddress(transport.address, "worker")


class SimulatedNetwork:
    """Nodes that take turns on a virtual clock; a test's parts take turns with them."""

    def __init__(self, directory):
        self.simulation = Simulation()

    def transport(self, name):
        return self.simulation.transport(name)

    def join(self, transport):
        """Known already."""

    def run(self, call):
        ends = []

        def program():
            try:
                ends.append((call(), None))
            except Exception as failure:
                ends.append((None, failure))

        self.simulation.spawn(program)
        self.simulation.run(until=lambda: ends)
        [(result, failure)] = ends
        if failure is not None:
            raise failure
        return result

    def at_once(self, *calls):
        ends = []
        for call in calls:
            self.simulation.spawn(lambda call=call: ends.append(call()))
        self.simulation.run(until=lambda: len(ends) == len(calls))

    def later(self, delay_s, call):
        done = []
        clock = self.simulation.transport("clock")

        def program():
            pull(clock, ["nobody"], first(1), timeout_s=delay_s)
            done.append(call())

        self.simulation.spawn(program)
        return lambda: self.simulation.run(until=lambda: done)

    def now_s(self):
        return self.simulation.now_s


class WithoutFaults:
    """Any network, its nodes behind the wrapper that could break links, and does not."""

    def __init__(self, network, directory):
        self.network = network(directory)
        self.faults = Faults([LinkFault("drop", "*", "*", range(0))])

    def transport(self, name):
        return self.faults.around(self.network.transport(name))

    def __getattr__(self, name):
        return getattr(self.network, name)


class WithoutLoss:
    """Simulated nodes behind links that could lose parts of a row, and lose none."""

    def __init__(self, directory):
        self.network = SimulatedNetwork(directory)

    def transport(self, name):
        return LossyTransport(self.network.transport(name), DATAGRAMS)

    def __getattr__(self, name):
        return getattr(self.network, name)


DATAGRAMS = LossyLinks(frozenset(NAMES), frozenset(NAMES), models=True)  # on all links, none lost
BY_UDP = partial(GrpcNetwork, by=partial(grpc_transport, links=DATAGRAMS))

NETWORKS = {
    "grpc": GrpcNetwork,
    "grpc-tls": partial(GrpcNetwork, tls=True),
    "grpc-unix": partial(GrpcNetwork, unix=True),
    "grpc-memory": partial(GrpcNetwork, memory=True),
    "grpc-tls-memory": partial(GrpcNetwork, tls=True, memory=True),
    "grpc-faultless": partial(WithoutFaults, GrpcNetwork),
    "udp": BY_UDP,
    "udp-tls-unix": partial(BY_UDP, tls=True, unix=True),
    "udp-memory": partial(BY_UDP, memory=True),
    "simulated": SimulatedNetwork,
    "simulated-lossless": WithoutLoss,
    "simulated-faultless": partial(WithoutFaults, SimulatedNetwork),
}


class Cluster:
    """Starts nodes on a network, and closes them."""

    def __init__(self, network):
        self.network = network
        self.open = []

    def start(self, name, outbox=None):
        transport = self.network.transport(name)
        self.open.append(transport)
        transport.serve(outbox if outbox is not None else Outbox())
        self.network.join(transport)
        return transport

    def start_all(self, answers):
        """A node per answer to GRADIENT; the first of them asks."""
        boxes = [Outbox({GRADIENT: answer} if answer is not None else {}) for answer in answers]
        pairs = zip(NAMES, boxes, strict=False)
        return [self.start(name, box) for name, box in pairs], boxes

    def pull(self, transport, *what, **how):
        return self.network.run(lambda: pull(transport, *what, **how))

    def took_s(self, call):
        start = self.network.now_s()
        result = call()
        return result, self.network.now_s() - start

    def later(self, delay_s, call):
        """Returns how to wait until it is done."""
        return self.network.later(delay_s, call)

    def close(self):
        for transport in self.open:
            transport.close()
        self.open.clear()


@pytest.fixture(params=NETWORKS)
def cluster(request, tmp_path):
    cluster = Cluster(NETWORKS[request.param](tmp_path))
    yield cluster
    cluster.close()


def vector(seed, length=10):
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


def ready(seed, length=10):
    return Ready(vector(seed, length))


def pull(transport, peers, until, key=GRADIENT, length=10, timeout_s=10.0):
    return transport.pull(peers, key, length=length, until=until, timeout_s=timeout_s)


# -- what comes back ------------------------------------------------------------------------------


def test_what_was_published_is_pulled(cluster):
    (asker, *_), _ = cluster.start_all([None, ready(1)])
    replies = cluster.pull(asker, ["worker-1"], first(1))
    assert replies.names == ("worker-1",)
    assert not replies.silent
    assert not replies.gone
    np.testing.assert_array_equal(replies.rows[0], vector(1))
    assert replies.rows[0].dtype == np.float32


def test_what_is_published_later_is_waited_for(cluster):
    (asker, *_), boxes = cluster.start_all([None, None])
    done = cluster.later(0.3, lambda: boxes[1].publish(GRADIENT, vector(1)))
    replies, wait_s = cluster.took_s(lambda: cluster.pull(asker, ["worker-1"], first(1)))
    done()
    np.testing.assert_array_equal(replies.rows[0], vector(1))
    assert 0.2 < wait_s < SOON_S


def test_rows_are_ordered_by_name_whatever_the_order_of_asking_and_arrival(cluster):
    (asker, *_), boxes = cluster.start_all([None] * 5)
    done = [
        cluster.later(0.05 * (5 - i), partial(boxes[i].publish, GRADIENT, vector(i)))
        for i in range(1, 5)
    ]
    names = ("worker-1", "worker-2", "worker-3", "worker-4")
    replies = cluster.pull(asker, names[::-1], all_of(names))
    assert replies.names == names
    for i, row in enumerate(replies.rows, start=1):
        np.testing.assert_array_equal(row, vector(i))
    for published in done:
        published()


def test_the_first_q_are_enough_and_the_others_are_not_waited_for(cluster):
    (asker, *_), boxes = cluster.start_all([None, ready(1), None, ready(3), None])
    replies, wait_s = cluster.took_s(lambda: cluster.pull(asker, NAMES[1:5], first(2)))
    assert replies.names == ("worker-1", "worker-3")
    assert replies.silent == {"worker-2": NOT_NEEDED, "worker-4": NOT_NEEDED}
    assert wait_s < SOON_S
    boxes[2].publish(GRADIENT, vector(2))  # nobody is listening, and nothing breaks
    assert cluster.pull(asker, ["worker-2"], first(1)).names == ("worker-2",)


def test_no_more_come_than_were_enough(cluster):
    (asker, *_), _ = cluster.start_all([None, ready(1), ready(2), ready(3), ready(4)])
    for _ in range(10):
        replies = cluster.pull(asker, NAMES[1:5], first(3))
        assert len(replies.names) == len(replies.rows) == 3
        assert len(replies.silent) == 1


def test_all_of_waits_for_everybody_named_and_for_nobody_else(cluster):
    (asker, *_), boxes = cluster.start_all([None, ready(1), None, None])
    done = cluster.later(0.3, lambda: boxes[2].publish(GRADIENT, vector(2)))
    replies = cluster.pull(asker, NAMES[1:4], all_of(["worker-1", "worker-2"]))
    done()
    assert replies.names == ("worker-1", "worker-2")
    assert set(replies.silent) == {"worker-3"}


def test_nothing_is_asked_for_when_nothing_is_needed(cluster):
    (asker, *_), _ = cluster.start_all([None, None])
    replies, wait_s = cluster.took_s(lambda: cluster.pull(asker, ["worker-1"], first(0)))
    assert replies.names == ()
    assert wait_s < SOON_S


def test_a_node_may_ask_itself(cluster):
    (asker, *_), boxes = cluster.start_all([None, ready(1)])
    done = cluster.later(0.2, lambda: boxes[0].publish(GRADIENT, vector(0)))
    replies = cluster.pull(asker, ["worker-1", "worker-0"], first(2))
    done()
    assert replies.names == ("worker-0", "worker-1")
    np.testing.assert_array_equal(replies.rows[0], vector(0))
    assert boxes[0].asked[0] == ("worker-0", GRADIENT)


def test_the_source_is_told_who_asks(cluster):
    transports, boxes = cluster.start_all([ready(0), ready(1), ready(2)])
    cluster.pull(transports[1], ["worker-0"], first(1))
    cluster.pull(transports[2], ["worker-0"], first(1))
    assert boxes[0].asked == [("worker-1", GRADIENT), ("worker-2", GRADIENT)]


def test_steps_rounds_and_kinds_are_kept_apart(cluster):
    box = Outbox()
    keys = [
        Key(kind, step, round_)
        for kind in ("model", "gradient", "aggregate")
        for step in (0, 1, 2**40)
        for round_ in (0, 3)
    ]
    for seed, key in enumerate(keys):
        box.publish(key, vector(seed))
    asker = cluster.start("worker-0")
    cluster.start("worker-1", box)
    for seed, key in enumerate(keys):
        replies = cluster.pull(asker, ["worker-1"], first(1), key=key)
        np.testing.assert_array_equal(replies.rows[0], vector(seed))


@pytest.mark.parametrize("length", [1, 262_144, 262_145, 5_000_000])
def test_vectors_short_and_long_arrive_whole(cluster, length):
    (asker, *_), _ = cluster.start_all([None, ready(1, length), ready(2, length)])
    for _ in range(2):  # the second time into the same memory
        replies = cluster.pull(asker, NAMES[1:3], first(2), length=length)
        np.testing.assert_array_equal(replies.rows[0], vector(1, length))
        np.testing.assert_array_equal(replies.rows[1], vector(2, length))


def test_rows_of_another_kind_stay_as_they_are(cluster):
    (asker, *_), boxes = cluster.start_all([None, ready(1)])
    boxes[1].publish(Key("model", 7), vector(2))
    gradient = cluster.pull(asker, ["worker-1"], first(1)).rows[0]
    cluster.pull(asker, ["worker-1"], first(1), key=Key("model", 7))
    np.testing.assert_array_equal(gradient, vector(1))


def test_whoever_gets_a_row_cannot_change_what_was_published(cluster):
    published = vector(1)
    published.flags.writeable = False
    (asker, *_), _ = cluster.start_all([ready(0), Ready(published)])
    for row in cluster.pull(asker, ["worker-0", "worker-1"], first(2)).rows:
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 0
    np.testing.assert_array_equal(published, vector(1))


# -- silence --------------------------------------------------------------------------------------


def test_whoever_says_nothing_is_silent_at_the_deadline_and_no_later(cluster):
    (asker, *_), _ = cluster.start_all([None, ready(1), None])
    replies, wait_s = cluster.took_s(
        lambda: cluster.pull(asker, NAMES[1:3], first(2), timeout_s=1.0)
    )
    assert replies.names == ("worker-1",)
    assert replies.silent == {"worker-2": no_answer(1)}
    assert 0.9 < wait_s < SOON_S


def test_whoever_is_past_the_step_says_where_it_is(cluster):
    (asker, *_), _ = cluster.start_all([None, Gone(now=12), ready(2)])
    replies, wait_s = cluster.took_s(lambda: cluster.pull(asker, NAMES[1:3], first(2)))
    assert replies.names == ("worker-2",)
    assert replies.gone == {"worker-1": 12}
    assert set(replies.silent) == {"worker-1"}
    assert wait_s < SOON_S


@pytest.mark.parametrize("length", [9, 11, 1, 1000])
def test_another_length_is_silence(cluster, length):
    (asker, *_), _ = cluster.start_all([None, ready(1, length), ready(2)])
    replies, wait_s = cluster.took_s(lambda: cluster.pull(asker, NAMES[1:3], first(2)))
    assert replies.names == ("worker-2",)
    assert any(str(size) in replies.silent["worker-1"].detail for size in (length, 4 * length))
    assert wait_s < SOON_S


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("length", [10, 600_001])
def test_a_number_that_is_not_finite_is_silence(cluster, poison, length):
    poisoned = vector(1, length)
    poisoned[-1] = poison
    (asker, *_), _ = cluster.start_all([Ready(poisoned), Ready(poisoned), ready(2, length)])
    replies = cluster.pull(asker, NAMES[:3], first(3), length=length)
    assert replies.names == ("worker-2",)
    assert replies.silent == {"worker-0": NOT_FINITE, "worker-1": NOT_FINITE}


@pytest.mark.parametrize("lie", [b"", b"abc", b"x" * 39, b"x" * 41, b"\xff" * 40])
def test_bytes_that_are_no_such_vector_are_silence(cluster, lie):
    (asker, *_), _ = cluster.start_all([Ready(lie), Ready(lie), ready(2)])
    replies = cluster.pull(asker, NAMES[:3], first(3))
    assert replies.names == ("worker-2",)
    assert set(replies.silent) == {"worker-0", "worker-1"}


def test_whoever_drips_is_silent(cluster):
    drip = Ready(vector(1), pace_bps=8.0)
    (asker, *_), _ = cluster.start_all([None, drip, ready(2)])
    replies, wait_s = cluster.took_s(
        lambda: cluster.pull(asker, NAMES[1:3], first(2), timeout_s=1.5)
    )
    assert replies.names == ("worker-2",)
    assert set(replies.silent) == {"worker-1"}
    assert wait_s < SOON_S


# -- coming and going -----------------------------------------------------------------------------


def test_a_peer_that_starts_late_is_waited_for(cluster):
    asker = cluster.start("worker-0")
    box = Outbox({GRADIENT: ready(1)})
    done = cluster.later(0.3, lambda: cluster.start("worker-1", box))
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    np.testing.assert_array_equal(replies.rows[0], vector(1))


def test_a_peer_that_never_starts_is_silent(cluster):
    asker = cluster.start("worker-0")
    replies = cluster.pull(asker, ["worker-1"], first(1), timeout_s=0.3)
    assert replies.names == ()
    assert set(replies.silent) == {"worker-1"}


def test_a_peer_that_starts_late_and_says_nothing_is_silent_for_that(cluster):
    (asker, peer), _ = cluster.start_all([None, None])
    peer.close()
    done = cluster.later(0.2, lambda: cluster.start("worker-1"))
    replies = cluster.pull(asker, ["worker-1"], first(1), timeout_s=1.5)
    done()
    assert replies.silent == {"worker-1": no_answer(1.5)}


def test_a_peer_that_goes_and_comes_back_is_found_again(cluster):
    (asker, peer), _ = cluster.start_all([None, ready(1)])
    assert cluster.pull(asker, ["worker-1"], first(1)).names == ("worker-1",)
    peer.close()
    assert cluster.pull(asker, ["worker-1"], first(1), timeout_s=0.3).names == ()
    done = cluster.later(0.2, lambda: cluster.start("worker-1", Outbox({GRADIENT: ready(3)})))
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    np.testing.assert_array_equal(replies.rows[0], vector(3))


def test_a_peer_that_comes_back_while_it_is_being_asked_is_asked_again(cluster):
    (asker, peer), _ = cluster.start_all([None, None])

    def restart():
        peer.close()
        cluster.start("worker-1", Outbox({GRADIENT: ready(4)}))

    done = cluster.later(0.3, restart)
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    np.testing.assert_array_equal(replies.rows[0], vector(4))


def test_several_threads_may_pull_different_kinds_at_once(cluster):
    (asker, *_), boxes = cluster.start_all([None, None, None])
    kinds = [Key(kind, 1) for kind in ("model", "gradient", "proposal", "aggregate")]
    found = {}

    def ask(key):
        found[key] = pull(asker, NAMES[1:3], first(2), key=key)

    def publish():
        for seed, key in enumerate(kinds):
            boxes[1].publish(key, vector(seed))
            boxes[2].publish(key, vector(seed + 10))

    done = cluster.later(0.1, publish)
    cluster.network.at_once(*(partial(ask, key) for key in kinds))
    done()
    for seed, key in enumerate(kinds):
        np.testing.assert_array_equal(found[key].rows[0], vector(seed))
        np.testing.assert_array_equal(found[key].rows[1], vector(seed + 10))


def test_many_rounds_go_by_without_a_mistake(cluster):
    transports, boxes = cluster.start_all([None] * 4)
    for step in range(30):
        key = Key("gradient", step)
        for i, box in enumerate(boxes):
            box.publish(key, vector(100 * step + i))
        for transport in transports:
            replies = cluster.pull(transport, NAMES[:4], first(3), key=key)
            assert len(replies.names) == 3
            for name, row in zip(replies.names, replies.rows, strict=True):
                np.testing.assert_array_equal(row, vector(100 * step + int(name[-1])))


# -- leaving nothing behind -----------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def settles(measure, at_most, within_s=5.0):
    """The system takes a moment to take things back."""
    deadline = time.monotonic() + within_s
    while measure() > at_most and time.monotonic() < deadline:
        time.sleep(0.05)
    return measure() <= at_most


def test_closing_leaves_no_thread_and_no_descriptor(cluster):
    def use():
        transports, boxes = cluster.start_all([None, ready(1), None])
        cluster.pull(transports[0], NAMES[1:3], first(1))
        cluster.pull(transports[0], NAMES[1:3], first(2), timeout_s=0.1)
        cluster.close()
        for box in boxes:
            box.publish(Key("gradient", 8), vector(8))  # to nobody

    use()  # what is loaded once stays
    threads, files = threading.active_count(), descriptors()
    for _ in range(3):
        use()
    assert settles(threading.active_count, threads)
    assert settles(descriptors, files)


def test_closing_ends_a_pull_that_is_under_way(cluster):
    (asker, *_), _ = cluster.start_all([None, None])
    start, done = cluster.network.now_s(), cluster.later(0.3, asker.close)
    with pytest.raises(GarfieldError, match="closed"):
        cluster.pull(asker, ["worker-1"], first(1), timeout_s=30)
    done()
    assert cluster.network.now_s() - start < SOON_S


def test_closing_twice_is_closing_once(cluster):
    asker = cluster.start("worker-0")
    asker.close()
    asker.close()
    with pytest.raises(GarfieldError, match="closed"):
        cluster.pull(asker, ["worker-1"], first(1))


def test_a_closed_transport_pulls_no_more(cluster):
    (asker, *_), _ = cluster.start_all([None, ready(1)])
    asker.close()
    with pytest.raises(GarfieldError, match="closed"):
        cluster.pull(asker, ["worker-1"], first(1))


def test_closing_a_node_that_was_replaced_leaves_its_successor_alone(cluster):
    (asker, old), _ = cluster.start_all([None, ready(1)])
    old.close()
    cluster.start("worker-1", Outbox({GRADIENT: ready(2)}))
    old.close()
    np.testing.assert_array_equal(cluster.pull(asker, ["worker-1"], first(1)).rows[0], vector(2))


def test_a_transport_serves_one_source(cluster):
    asker = cluster.start("worker-0")
    with pytest.raises(GarfieldError, match="serving already"):
        asker.serve(Outbox())


# -- numbers of another width ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, 400_001])
def test_the_kind_of_a_key_says_whether_its_numbers_are_float64(cluster, length):
    """Coded rows lose their meaning in float32."""
    coded = Key("coded", 7)
    wide = np.random.default_rng(1).standard_normal(length) * 1e200
    infinite = wide.copy()
    infinite[-1] = np.inf
    said = [Ready(wide), Ready(wide), Ready(infinite), ready(3, length), Ready(wide[:-1])]
    transports = [
        cluster.start(name, Outbox({coded: answer}))
        for name, answer in zip(NAMES, said, strict=False)
    ]
    for _ in range(2):  # the second time into the same memory
        replies = cluster.pull(transports[0], NAMES[:5], first(5), key=coded, length=length)
        assert replies.names == ("worker-0", "worker-1")
        for row in replies.rows:
            assert row.dtype == np.float64
            np.testing.assert_array_equal(row, wide)
        assert replies.silent["worker-2"] == NOT_FINITE
        assert set(replies.silent) == {"worker-2", "worker-3", "worker-4"}
