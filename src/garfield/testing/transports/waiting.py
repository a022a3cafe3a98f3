"""How long a pull lasts, and what becomes of answers that come late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from garfield.core.silence import Reason
from garfield.testing.network import (
    GRADIENT,
    NAMES,
    Cluster,
    PlainOutbox,
    expect_names,
    expect_reason,
    expect_row,
    expect_silent,
    expect_soon,
    ready,
    vector,
)
from garfield.testing.promises import expect
from garfield.transport.contract import NEWEST, Heard, Key, Ready, Transport, first


def deadlines_are_kept(cluster: Cluster) -> None:
    """Whoever says nothing is silent at the deadline, and no later."""
    (asker, *_), _ = cluster.start_all([None, ready(1), None])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2), timeout_s=1.0)
    expect_names(replies, "worker-1")
    expect_silent(replies, "worker-2")
    expect_reason(replies, "worker-2", Reason.NO_ANSWER)
    expect(wait_s > 0.9, f"It was waited for {wait_s:.2f} s instead of 1.")
    expect_soon(wait_s)


def whoever_drips_is_silent(cluster: Cluster) -> None:
    """Whoever sends too slowly is silent, and holds nobody up beyond the deadline."""
    drip = Ready(vector(1), pace_bps=8.0)
    (asker, *_), _ = cluster.start_all([None, drip, ready(2)])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2), timeout_s=1.5)
    expect_names(replies, "worker-2")
    expect_silent(replies, "worker-1")
    expect_soon(wait_s)


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


def what_is_kept_back_comes_late(cluster: Cluster) -> None:
    """An answer that its sender keeps back for a while comes when that is over."""
    (asker, *_), _ = cluster.start_all([None, replace(ready(1), after_s=0.4)])
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
    expect_row(replies.rows[0], vector(1))
    expect(wait_s > 0.3, f"It came after {wait_s:.2f} s.")
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
    _comes_late_and_counts(cluster, asker, boxes)


def what_came_late_counts_though_a_later_step_was_asked_for_before(cluster: Cluster) -> None:
    """A request for a later step that nobody waits for makes room for that of an earlier one."""
    (asker, *_), boxes = cluster.start_all([None, ready(1), None])
    shortly = partial(_seconds_until, cluster, cluster.network.now_s() + 0.2)
    later = Key("gradient", GRADIENT.step + 1)
    expect_silent(cluster.pull(asker, ["worker-2"], shortly, key=later), "worker-2")
    _comes_late_and_counts(cluster, asker, boxes)


def _comes_late_and_counts(
    cluster: Cluster, asker: Transport, boxes: Sequence[PlainOutbox]
) -> None:
    """A gradient of worker-2 comes after a pull that worker-1 was enough for."""
    cluster.pull(asker, NAMES[1:3], first(1))
    boxes[2].publish(GRADIENT, vector(2))
    for _ in range(50):  # until it has arrived
        if cluster.pull(asker, ["worker-0"], first(1), key=Key("model", 0), timeout_s=0.1).late:
            break
    boxes[2].publish(GRADIENT, vector(3))  # as nobody honest does: it shows who asks again
    replies = cluster.pull(asker, NAMES[1:3], first(2))
    expect_names(replies, "worker-1", "worker-2")
    expect_row(replies.rows[1], vector(2))


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


CHECKS = (
    deadlines_are_kept, whoever_drips_is_silent, how_long_to_wait_may_be_said_meanwhile,
    what_is_kept_back_comes_late, who_is_late_is_not_cut_off,
    what_came_late_counts_if_it_is_asked_for_again,
    what_came_late_counts_though_a_later_step_was_asked_for_before,
    an_earlier_step_is_not_kept_waiting_by_a_later_one,
)  # fmt: skip
