"""What a pull brings: the rows that were published, in order, whole, and no more than enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from garfield.core.silence import NOT_FINITE, NOT_NEEDED, Reason
from garfield.testing.network import (
    GRADIENT,
    NAMES,
    Cluster,
    PlainOutbox,
    eventually,
    expect_names,
    expect_row,
    expect_silent,
    expect_soon,
    pull,
    ready,
    vector,
)
from garfield.testing.promises import expect
from garfield.transport.contract import (
    NEWEST,
    Key,
    Ready,
    Replies,
    Transport,
    VectorKind,
    all_of,
    declare_kind,
    first,
)


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


def _expect_sent(senders: Sequence[Transport], whole: int) -> None:
    def sent() -> int:
        return sum(sender.bytes_sent for sender in senders)

    expect(eventually(lambda: sent() >= whole), f"{sent()} bytes sent of {whole}.")


def whole_numbers_arrive_as_they_are(cluster: Cluster) -> None:
    """Whole numbers arrive as they are, also those whose bytes would be no finite float."""
    words_of: dict[str, Any] = {"words32": np.uint32, "words64": np.uint64}
    for name, dtype in words_of.items():
        kind = declare_kind(VectorKind(name, dtype=np.dtype(dtype)))
        key, most = Key(kind.name, 7), np.iinfo(dtype).max
        words = np.array([0, 1, most, most - 1, most // 2, 0x7FC00000], dtype)
        (asker, *_), _ = cluster.start_all([None, Ready(words)], key=key)
        replies = cluster.pull(asker, ["worker-1"], first(1), key=key, length=len(words))
        expect_row(replies.rows[0], words)
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


CHECKS = (
    what_was_published_is_pulled, what_is_published_later_is_waited_for, rows_are_ordered_by_name,
    the_first_are_enough, no_more_than_enough_come, those_named_are_waited_for,
    nothing_is_asked_for_when_nothing_is_needed, a_node_may_ask_itself,
    the_outbox_is_told_who_asks, keys_are_kept_apart, vectors_short_and_long_arrive_whole,
    whole_numbers_arrive_as_they_are, rows_of_another_kind_stay, rows_are_read_only,
    a_shared_copy_is_a_copy,
    numbers_are_of_the_kind_s_dtype, the_newest_comes_with_its_step,
    different_kinds_may_be_pulled_at_once, many_rounds_go_by_without_a_mistake,
)  # fmt: skip
