"""What is promised of every transport, however it moves its vectors.

    from garfield.testing import check_transport
    from garfield.testing.network import Network

    check_transport(lambda: Network(lambda name, addresses: MyTransport(name, addresses)))

`addresses` fills up as nodes start: names to what their transports gave as `address`.
A transport with a clock of its own overrides the last four methods of `Network`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from math import inf

import numpy as np

from garfield.core.errors import GarfieldError
from garfield.core.silence import NOT_FINITE, NOT_NEEDED, Reason
from garfield.testing.network import (
    GRADIENT,
    NAMES,
    Cluster,
    NewNetwork,
    PlainOutbox,
    expect_names,
    expect_row,
    expect_silent,
    expect_soon,
    pull,
    ready,
    vector,
)
from garfield.testing.promises import Check, expect, keep_all, refused
from garfield.transport.contract import (
    NEWEST,
    Gone,
    Heard,
    Key,
    Ready,
    Refused,
    Replies,
    Transport,
    all_of,
    first,
)


def check_transport(new_network: NewNetwork, name: str = "the transport") -> None:
    """Hold a transport to the contract; AssertionError names the promise that it breaks."""
    keep_all(TRANSPORT_CHECKS, new_network, name)


# -- what comes back ------------------------------------------------------------------------------


def what_was_published_is_pulled(cluster: Cluster) -> None:
    """A pull brings what the peer has published, and says of nobody that it was silent."""
    (asker, *_), _ = cluster.start_all([None, ready(1)])
    replies = cluster.pull(asker, ["worker-1"], first(1))
    expect_names(replies, "worker-1")
    expect_silent(replies)
    expect(not replies.gone, f"Nobody is past the step, got {replies.gone}.")
    expect_row(replies.rows[0], vector(1))


def what_is_published_later_is_waited_for(cluster: Cluster) -> None:
    """A vector that is not there yet is waited for, and comes as soon as it is."""
    (asker, *_), boxes = cluster.start_all([None, None])
    done = cluster.network.run_later(0.3, lambda: boxes[1].publish(GRADIENT, vector(1)))
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
    done()
    expect_row(replies.rows[0], vector(1))
    expect(wait_s > 0.2, f"It came after {wait_s:.2f} s, before it was published.")
    expect_soon(wait_s)


def rows_are_ordered_by_name(cluster: Cluster) -> None:
    """Rows are ordered by their senders' names, whatever the order of asking and arrival."""
    (asker, *_), boxes = cluster.start_all([None] * 5)
    done = [
        cluster.network.run_later(0.05 * (5 - i), partial(boxes[i].publish, GRADIENT, vector(i)))
        for i in range(1, 5)
    ]
    replies = cluster.pull(asker, NAMES[4:0:-1], all_of(NAMES[1:5]))
    for published in done:
        published()
    expect_names(replies, *NAMES[1:5])
    for i, row in enumerate(replies.rows, start=1):
        expect_row(row, vector(i))


def the_first_are_enough(cluster: Cluster) -> None:
    """The first q are enough: the others are not waited for, nor blamed."""
    (asker, *_), boxes = cluster.start_all([None, ready(1), None, ready(3), None])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:5], first(2))
    expect_names(replies, "worker-1", "worker-3")
    blamed = {name: why for name, why in replies.silent.items() if why != NOT_NEEDED}
    expect(not blamed, f"Blamed for nothing: {blamed}.")
    expect_silent(replies, "worker-2", "worker-4")
    expect_soon(wait_s)
    boxes[2].publish(GRADIENT, vector(2))  # nobody is listening, and nothing breaks
    expect_names(cluster.pull(asker, ["worker-2"], first(1)), "worker-2")


def no_more_than_enough_come(cluster: Cluster) -> None:
    """No more rows come than were enough."""
    (asker, *_), _ = cluster.start_all([None, *(ready(i) for i in range(1, 5))])
    for _ in range(10):
        replies = cluster.pull(asker, NAMES[1:5], first(3))
        expect(len(replies.names) == len(replies.rows) == 3, f"{replies.names} came for 3.")
        expect(len(replies.silent) == 1, f"{set(replies.silent)} are silent instead of one.")


def those_named_are_waited_for(cluster: Cluster) -> None:
    """With all_of, everybody named is waited for, and nobody else."""
    (asker, *_), boxes = cluster.start_all([None, ready(1), None, None])
    done = cluster.network.run_later(0.3, lambda: boxes[2].publish(GRADIENT, vector(2)))
    replies = cluster.pull(asker, NAMES[1:4], all_of(NAMES[1:3]))
    done()
    expect_names(replies, "worker-1", "worker-2")
    expect_silent(replies, "worker-3")


def nothing_is_asked_for_when_nothing_is_needed(cluster: Cluster) -> None:
    """A pull that needs nobody returns at once, with nothing."""
    (asker, *_), _ = cluster.start_all([None, None])
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(0))
    expect_names(replies)
    expect_soon(wait_s)


def a_node_may_ask_itself(cluster: Cluster) -> None:
    """A node may ask itself, and is answered as a peer would be."""
    (asker, *_), boxes = cluster.start_all([None, ready(1)])
    done = cluster.network.run_later(0.2, lambda: boxes[0].publish(GRADIENT, vector(0)))
    replies = cluster.pull(asker, ["worker-1", "worker-0"], first(2))
    done()
    expect_names(replies, "worker-0", "worker-1")
    expect_row(replies.rows[0], vector(0))
    asked = boxes[0].asked[0]
    expect(asked == ("worker-0", GRADIENT), f"The outbox was asked by and for {asked}.")


def the_outbox_is_told_who_asks(cluster: Cluster) -> None:
    """The outbox is told who asks, and for what."""
    transports, boxes = cluster.start_all([ready(0), ready(1), ready(2)])
    cluster.pull(transports[1], ["worker-0"], first(1))
    cluster.pull(transports[2], ["worker-0"], first(1))
    expected = [("worker-1", GRADIENT), ("worker-2", GRADIENT)]
    expect(boxes[0].asked == expected, f"It was told {boxes[0].asked}.")


def keys_are_kept_apart(cluster: Cluster) -> None:
    """Vectors of different kinds, steps and rounds are never taken for each other."""
    box = PlainOutbox()
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
        expect_row(cluster.pull(asker, ["worker-1"], first(1), key=key).rows[0], vector(seed))


def _expect_sent(senders: Sequence[Transport], whole: int) -> None:
    def sent() -> int:
        return sum(sender.bytes_sent for sender in senders)

    expect(eventually(lambda: sent() >= whole), f"{sent()} bytes sent of {whole}.")


def vectors_short_and_long_arrive_whole(cluster: Cluster) -> None:
    """Vectors short and long arrive whole, and are counted where they leave and where they come."""
    for length in (1, 262_144, 262_145, 5_000_000):
        (asker, *senders), _ = cluster.start_all([None, ready(1, length), ready(2, length)])
        for _ in range(2):  # the second time into the same memory
            replies = cluster.pull(asker, NAMES[1:3], first(2), length=length)
            expect_row(replies.rows[0], vector(1, length))
            expect_row(replies.rows[1], vector(2, length))
        whole = 16 * length
        received = asker.bytes_received
        expect(received >= whole, f"{received} bytes received of {whole}.")
        # whoever sends counts when it is done, which may be after the asker has all of it
        _expect_sent(senders, whole)
        cluster.close()


def rows_of_another_kind_stay(cluster: Cluster) -> None:
    """Rows stay as they are when vectors of another kind are pulled."""
    (asker, *_), boxes = cluster.start_all([None, ready(1)])
    boxes[1].publish(Key("model", 7), vector(2))
    gradient = cluster.pull(asker, ["worker-1"], first(1)).rows[0]
    cluster.pull(asker, ["worker-1"], first(1), key=Key("model", 7))
    expect_row(gradient, vector(1))


def rows_are_read_only(cluster: Cluster) -> None:
    """Whoever gets a row cannot change what was published."""
    published = vector(1)
    published.flags.writeable = False
    (asker, *_), _ = cluster.start_all([ready(0), Ready(published)])
    for row in cluster.pull(asker, NAMES[:2], first(2)).rows:
        expect(not row.flags.writeable, "A row can be written to.")
    expect_row(published, vector(1))


def a_shared_copy_is_a_copy(cluster: Cluster) -> None:
    """A copy made for peers on this host holds the same numbers, and travels as any vector."""
    (asker, sender), boxes = cluster.start_all([None, None])
    long = vector(1, 500_000)
    copy = sender.shared_copy(long)
    boxes[1].publish(GRADIENT, long if copy is None else copy)
    replies = cluster.pull(asker, ["worker-1"], first(1), length=len(long))
    expect_row(replies.rows[0], vector(1, 500_000))


def numbers_are_of_the_kind_s_dtype(cluster: Cluster) -> None:
    """The kind of a key says whether its numbers are float64, and no others are taken."""
    coded = Key("coded", 7)
    for length in (10, 400_001):
        wide = np.random.default_rng(1).standard_normal(length) * 1e200
        infinite = wide.copy()
        infinite[-1] = np.inf
        said = [Ready(wide), Ready(wide), Ready(infinite), ready(3, length), Ready(wide[:-1])]
        transports, _ = cluster.start_all(said, coded)
        for _ in range(2):  # the second time into the same memory
            replies = cluster.pull(transports[0], NAMES[:5], first(5), key=coded, length=length)
            expect_names(replies, "worker-0", "worker-1")
            for row in replies.rows:
                expect_row(row, wide)
            why = replies.silent["worker-2"]
            expect(why == NOT_FINITE, f"Of an infinite number it is said: {why}.")
            expect_silent(replies, "worker-2", "worker-3", "worker-4")
        cluster.close()


# -- silence --------------------------------------------------------------------------------------


def deadlines_are_kept(cluster: Cluster) -> None:
    """Whoever says nothing is silent at the deadline, and no later."""
    (asker, *_), _ = cluster.start_all([None, ready(1), None])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2), timeout_s=1.0)
    expect_names(replies, "worker-1")
    expect_silent(replies, "worker-2")
    _expect_reason(replies, "worker-2", Reason.NO_ANSWER)
    expect(wait_s > 0.9, f"It was waited for {wait_s:.2f} s instead of 1.")
    expect_soon(wait_s)


def _expect_reason(replies: Replies, name: str, reason: Reason) -> None:
    why = replies.silent[name]
    expect(why.reason is reason, f"{name} is said to be silent for {why.reason}, not {reason}.")


def who_is_past_the_step_says_so(cluster: Cluster) -> None:
    """A peer that is past the step says where it is, and is blamed for nothing."""
    (asker, *_), _ = cluster.start_all([None, Gone(now=12), ready(2)])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2))
    expect_names(replies, "worker-2")
    expect(replies.gone == {"worker-1": 12}, f"It says {replies.gone}.")
    expect_silent(replies, "worker-1")
    _expect_reason(replies, "worker-1", Reason.GONE)
    expect_soon(wait_s)


def another_length_is_silence(cluster: Cluster) -> None:
    """A vector of another length counts as silence, and is proof of a lie."""
    for length in (9, 11, 1, 1000):
        (asker, *_), _ = cluster.start_all([None, ready(1, length), ready(2)])
        replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2))
        expect_names(replies, "worker-2")
        _expect_reason(replies, "worker-1", Reason.WRONG_SIZE)
        told = str(replies.silent["worker-1"])
        expect(str(length) in told or str(4 * length) in told, f"Of {length} it is said: {told}.")
        expect_soon(wait_s)
        cluster.close()


def numbers_that_are_not_finite_are_silence(cluster: Cluster) -> None:
    """A vector with a number that is not finite counts as silence, also one's own."""
    for poison in (np.nan, np.inf, -np.inf):
        for length in (10, 600_001):
            poisoned = vector(1, length)
            poisoned[-1] = poison
            said = [Ready(poisoned), Ready(poisoned), ready(2, length)]
            (asker, *_), _ = cluster.start_all(said)
            replies = cluster.pull(asker, NAMES[:3], first(3), length=length)
            expect_names(replies, "worker-2")
            _expect_reason(replies, "worker-0", Reason.NOT_FINITE)
            _expect_reason(replies, "worker-1", Reason.NOT_FINITE)
            cluster.close()


def bytes_that_are_no_such_vector_are_silence(cluster: Cluster) -> None:
    """Bytes that are no vector as was asked for count as silence."""
    for lie in (b"", b"abc", b"x" * 39, b"x" * 41, b"\xff" * 40):
        (asker, *_), _ = cluster.start_all([Ready(lie), Ready(lie), ready(2)])
        replies = cluster.pull(asker, NAMES[:3], first(3))
        expect_names(replies, "worker-2")
        expect_silent(replies, "worker-0", "worker-1")
        cluster.close()


def whoever_drips_is_silent(cluster: Cluster) -> None:
    """Whoever sends too slowly is silent, and holds nobody up beyond the deadline."""
    drip = Ready(vector(1), pace_bps=8.0)
    (asker, *_), _ = cluster.start_all([None, drip, ready(2)])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2), timeout_s=1.5)
    expect_names(replies, "worker-2")
    expect_silent(replies, "worker-1")
    expect_soon(wait_s)


# -- coming and going -----------------------------------------------------------------------------


def a_peer_that_starts_late_is_waited_for(cluster: Cluster) -> None:
    """A peer that starts late is waited for."""
    asker = cluster.start("worker-0")
    box = PlainOutbox({GRADIENT: ready(1)})
    done = cluster.network.run_later(0.3, lambda: cluster.start("worker-1", box))
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    expect_row(replies.rows[0], vector(1))


def a_peer_that_never_starts_is_silent(cluster: Cluster) -> None:
    """A peer that never starts is silent."""
    asker = cluster.start("worker-0")
    replies = cluster.pull(asker, ["worker-1"], first(1), timeout_s=0.3)
    expect_names(replies)
    expect_silent(replies, "worker-1")


def a_peer_that_starts_late_is_silent_for_what_it_does_then(cluster: Cluster) -> None:
    """A peer that starts late and then says nothing is silent for that."""
    (asker, peer), _ = cluster.start_all([None, None])
    peer.close()
    done = cluster.network.run_later(0.2, lambda: cluster.start("worker-1"))
    replies = cluster.pull(asker, ["worker-1"], first(1), timeout_s=1.5)
    done()
    expect_silent(replies, "worker-1")
    _expect_reason(replies, "worker-1", Reason.NO_ANSWER)


def a_peer_that_comes_back_is_found_again(cluster: Cluster) -> None:
    """A peer that goes and comes back is found again."""
    (asker, peer), _ = cluster.start_all([None, ready(1)])
    expect_names(cluster.pull(asker, ["worker-1"], first(1)), "worker-1")
    peer.close()
    expect_names(cluster.pull(asker, ["worker-1"], first(1), timeout_s=0.3))
    box = PlainOutbox({GRADIENT: ready(3)})
    done = cluster.network.run_later(0.2, lambda: cluster.start("worker-1", box))
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    expect_row(replies.rows[0], vector(3))


def a_peer_that_comes_back_meanwhile_is_asked_again(cluster: Cluster) -> None:
    """A peer that comes back while it is being asked is asked again."""
    (asker, peer), _ = cluster.start_all([None, None])

    def restart() -> None:
        peer.close()
        cluster.start("worker-1", PlainOutbox({GRADIENT: ready(4)}))

    done = cluster.network.run_later(0.3, restart)
    replies = cluster.pull(asker, ["worker-1"], first(1))
    done()
    expect_row(replies.rows[0], vector(4))


def an_earlier_step_is_not_kept_waiting_by_a_later_one(cluster: Cluster) -> None:
    """A peer that was asked for something newer in vain is asked for an earlier step at once."""
    (asker, *_), _ = cluster.start_all([None, ready(1)])
    for later in (Key("gradient", NEWEST, GRADIENT.step + 1), Key("gradient", GRADIENT.step + 1)):
        ends_s = cluster.network.now_s() + 0.2
        shortly = partial(_seconds_until, cluster, ends_s)
        expect_silent(cluster.pull(asker, ["worker-1"], shortly, key=later), "worker-1")
        replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
        expect_names(replies, "worker-1")
        expect_soon(wait_s)


def _seconds_until(cluster: Cluster, ends_s: float, heard: Heard) -> float:
    return max(0.0, ends_s - cluster.network.now_s())


def different_kinds_may_be_pulled_at_once(cluster: Cluster) -> None:
    """Several threads may pull vectors of different kinds at once."""
    (asker, *_), boxes = cluster.start_all([None, None, None])
    keys = [Key(kind, 1) for kind in ("model", "gradient", "proposal", "aggregate")]
    found: dict[Key, Replies] = {}

    def ask(key: Key) -> None:
        found[key] = pull(asker, NAMES[1:3], first(2), key=key)

    def publish() -> None:
        for seed, key in enumerate(keys):
            boxes[1].publish(key, vector(seed))
            boxes[2].publish(key, vector(seed + 10))

    done = cluster.network.run_later(0.1, publish)
    cluster.network.run_together([partial(ask, key) for key in keys])
    done()
    for seed, key in enumerate(keys):
        expect_row(found[key].rows[0], vector(seed))
        expect_row(found[key].rows[1], vector(seed + 10))


def many_rounds_go_by_without_a_mistake(cluster: Cluster) -> None:
    """Many rounds go by without a mistake."""
    transports, boxes = cluster.start_all([None] * 4)
    for step in range(30):
        key = Key("gradient", step)
        for i, box in enumerate(boxes):
            box.publish(key, vector(100 * step + i))
        for transport in transports:
            replies = cluster.pull(transport, NAMES[:4], first(3), key=key)
            expect(len(replies.names) == 3, f"{replies.names} came for 3.")
            for name, row in zip(replies.names, replies.rows, strict=True):
                expect_row(row, vector(100 * step + int(name[-1])))


# -- leaving nothing behind -----------------------------------------------------------------------


def closing_leaves_nothing(cluster: Cluster) -> None:
    """Closing leaves no thread and no descriptor."""

    def use() -> None:
        transports, boxes = cluster.start_all([None, ready(1), None])
        cluster.pull(transports[0], NAMES[1:3], first(1))
        cluster.pull(transports[0], NAMES[1:3], first(2), timeout_s=0.1)
        cluster.close()
        for box in boxes:
            box.publish(Key("gradient", 8), vector(8))  # to nobody

    use()  # what is loaded once stays
    threads, files = threading.active_count(), _descriptors()
    for _ in range(3):
        use()
    expect(
        eventually(lambda: threading.active_count() <= threads),
        f"More than {threads} threads are left.",
    )
    expect(eventually(lambda: _descriptors() <= files), f"More than {files} descriptors are left.")


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def eventually(condition: Callable[[], bool], within_s: float = 30.0) -> bool:
    """Whether it comes true: other threads, and the system, take a moment."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def closing_ends_a_pull(cluster: Cluster) -> None:
    """Closing ends a pull that is under way, with an error that says so."""
    (asker, *_), _ = cluster.start_all([None, None])
    began, done = cluster.network.now_s(), cluster.network.run_later(0.3, asker.close)
    with refused(GarfieldError, "closed", "A pull of a transport that is closed meanwhile"):
        cluster.pull(asker, ["worker-1"], first(1), timeout_s=30)
    done()
    expect_soon(cluster.network.now_s() - began)


def closing_twice_is_closing_once(cluster: Cluster) -> None:
    """Closing twice is closing once, and whoever is closed pulls no more."""
    (asker, *_), _ = cluster.start_all([None, ready(1)])
    asker.close()
    with refused(GarfieldError, "closed", "A pull of a closed transport"):
        cluster.pull(asker, ["worker-1"], first(1))
    asker.close()
    with refused(GarfieldError, "closed", "A pull of a closed transport"):
        cluster.pull(asker, ["worker-1"], first(1))


def successors_are_left_alone(cluster: Cluster) -> None:
    """Closing a node that was replaced leaves its successor alone."""
    (asker, old), _ = cluster.start_all([None, ready(1)])
    old.close()
    cluster.start("worker-1", PlainOutbox({GRADIENT: ready(2)}))
    old.close()
    expect_row(cluster.pull(asker, ["worker-1"], first(1)).rows[0], vector(2))


def a_transport_serves_one_outbox(cluster: Cluster) -> None:
    """A transport serves one outbox, and refuses a second."""
    asker = cluster.start("worker-0")
    with refused(GarfieldError, "serving already", "A second outbox"):
        asker.serve(PlainOutbox())


def _on_a_network_of_its_own(check: Callable[[Cluster], None]) -> Check[NewNetwork]:
    @wraps(check)
    def run(new_network: NewNetwork) -> None:
        with _closing(Cluster(new_network())) as cluster:
            check(cluster)

    return run


@contextmanager
def _closing(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.close()


# -- time -----------------------------------------------------------------------------------------


def how_long_to_wait_may_be_said_meanwhile(cluster: Cluster) -> None:
    """A pull waits for as long as it is told, anew whenever somebody has answered."""
    (asker, *_), _ = cluster.start_all([None, ready(1), None])
    told: list[float] = []

    def until(heard: Heard) -> float:
        if heard.rows:
            told.append(cluster.network.now_s())
        return max(0.0, told[0] + 0.4 - told[-1]) if told else inf

    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], until)
    expect_names(replies, "worker-1")
    expect(wait_s > 0.3, f"It ended after {wait_s:.2f} s, and was told to wait for 0.4 s.")
    expect_soon(wait_s)


def who_is_late_is_not_cut_off(cluster: Cluster) -> None:
    """An answer that comes when its pull is over is told with the next, and the next one counts."""
    (asker, *_), boxes = cluster.start_all([None, ready(1), None])
    replies = cluster.pull(asker, NAMES[1:3], first(1))
    expect(not replies.late, f"Nobody was late yet, got {set(replies.late)}.")
    boxes[2].publish(GRADIENT, vector(2))
    after, late = Key("gradient", 8), set[str]()
    boxes[1].publish(after, vector(3))
    for _ in range(50):  # until it has arrived
        late |= cluster.pull(asker, ["worker-0"], first(1), key=Key("model", 0), timeout_s=0.1).late
        if late:
            break
    expect(late == {"worker-2"}, f"worker-2 was late, and it is said of {late}.")
    boxes[2].publish(after, vector(4))
    replies = cluster.pull(asker, NAMES[1:3], first(2), key=after)
    expect_names(replies, "worker-1", "worker-2")
    expect_row(replies.rows[1], vector(4))


def what_came_late_counts_if_it_is_asked_for_again(cluster: Cluster) -> None:
    """What has come since its pull ended is not sent twice: it counts for one of the same key."""
    (asker, *_), boxes = cluster.start_all([None, ready(1), None])
    cluster.pull(asker, NAMES[1:3], first(1))
    boxes[2].publish(GRADIENT, vector(2))
    for _ in range(50):  # until it has arrived
        if cluster.pull(asker, ["worker-0"], first(1), key=Key("model", 0), timeout_s=0.1).late:
            break
    boxes[2].publish(GRADIENT, vector(3))  # as nobody honest does: it shows who asks again
    replies = cluster.pull(asker, NAMES[1:3], first(2))
    expect_names(replies, "worker-1", "worker-2")
    expect_row(replies.rows[1], vector(2))


def the_newest_comes_with_its_step(cluster: Cluster) -> None:
    """Who asks for the newest is told which step it is of; one that does not say it is silent."""
    newest = Key("model", NEWEST, 5)
    answers = [None, replace(ready(1), step=9), ready(2)]
    (asker, *_), _ = cluster.start_all(answers, key=newest)
    replies = cluster.pull(asker, NAMES[1:3], first(2), key=newest)
    expect_names(replies, "worker-1")
    expect(replies.steps == {"worker-1": 9}, f"It is of step 9, got {dict(replies.steps)}.")
    reason = replies.silent["worker-2"].reason
    expect(reason is Reason.WRONG_STEP, f"worker-2 is silent for {reason}.")


def who_is_refused_is_told_so(cluster: Cluster) -> None:
    """What is not for everybody is refused at once, and that is no lie."""
    (asker, *_), _ = cluster.start_all([None, Refused()])
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
    reason = replies.silent["worker-1"].reason
    expect(reason is Reason.REFUSED and not reason.proof, f"It is silent for {reason}.")
    expect_soon(wait_s)


def what_is_kept_back_comes_late(cluster: Cluster) -> None:
    """An answer that its sender keeps back for a while comes when that is over."""
    (asker, *_), _ = cluster.start_all([None, replace(ready(1), after_s=0.4)])
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
    expect_row(replies.rows[0], vector(1))
    expect(wait_s > 0.3, f"It came after {wait_s:.2f} s.")
    expect_soon(wait_s)


TRANSPORT_CHECKS: tuple[Check[NewNetwork], ...] = tuple(
    _on_a_network_of_its_own(check)
    for check in (
        what_was_published_is_pulled,
        what_is_published_later_is_waited_for,
        rows_are_ordered_by_name,
        the_first_are_enough,
        no_more_than_enough_come,
        those_named_are_waited_for,
        nothing_is_asked_for_when_nothing_is_needed,
        a_node_may_ask_itself,
        the_outbox_is_told_who_asks,
        keys_are_kept_apart,
        vectors_short_and_long_arrive_whole,
        rows_of_another_kind_stay,
        rows_are_read_only,
        a_shared_copy_is_a_copy,
        numbers_are_of_the_kind_s_dtype,
        deadlines_are_kept,
        who_is_past_the_step_says_so,
        another_length_is_silence,
        numbers_that_are_not_finite_are_silence,
        bytes_that_are_no_such_vector_are_silence,
        whoever_drips_is_silent,
        a_peer_that_starts_late_is_waited_for,
        a_peer_that_never_starts_is_silent,
        a_peer_that_starts_late_is_silent_for_what_it_does_then,
        a_peer_that_comes_back_is_found_again,
        a_peer_that_comes_back_meanwhile_is_asked_again,
        an_earlier_step_is_not_kept_waiting_by_a_later_one,
        different_kinds_may_be_pulled_at_once,
        many_rounds_go_by_without_a_mistake,
        closing_leaves_nothing,
        closing_ends_a_pull,
        closing_twice_is_closing_once,
        successors_are_left_alone,
        a_transport_serves_one_outbox,
        how_long_to_wait_may_be_said_meanwhile,
        who_is_late_is_not_cut_off,
        what_came_late_counts_if_it_is_asked_for_again,
        the_newest_comes_with_its_step,
        who_is_refused_is_told_so,
        what_is_kept_back_comes_late,
    )
)
"""Each takes what makes a network, and starts its nodes on a new one."""
