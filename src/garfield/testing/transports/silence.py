"""What counts as silence, and for which reason: whatever is no vector as was asked for."""

from __future__ import annotations

import numpy as np

from garfield.core.silence import Reason
from garfield.testing.network import (
    NAMES,
    Cluster,
    expect_names,
    expect_reason,
    expect_silent,
    expect_soon,
    ready,
    vector,
)
from garfield.testing.promises import expect
from garfield.transport.contract import Gone, Ready, Refused, first


def who_is_past_the_step_says_so(cluster: Cluster) -> None:
    """A peer that is past the step says where it is, and is blamed for nothing."""
    (asker, *_), _ = cluster.start_all([None, Gone(now=12), ready(2)])
    replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2))
    expect_names(replies, "worker-2")
    expect(replies.gone == {"worker-1": 12}, f"It says {replies.gone}.")
    expect_silent(replies, "worker-1")
    expect_reason(replies, "worker-1", Reason.GONE)
    expect_soon(wait_s)


def who_is_refused_is_told_so(cluster: Cluster) -> None:
    """What is not for everybody is refused at once, and that is no lie."""
    (asker, *_), _ = cluster.start_all([None, Refused()])
    replies, wait_s = cluster.timed_pull(asker, ["worker-1"], first(1))
    reason = replies.silent["worker-1"].reason
    expect(reason is Reason.REFUSED and not reason.proof, f"It is silent for {reason}.")
    expect_soon(wait_s)


def another_length_is_silence(cluster: Cluster) -> None:
    """A vector of another length counts as silence, and is proof of a lie."""
    for length in (9, 11, 1, 1000):
        (asker, *_), _ = cluster.start_all([None, ready(1, length), ready(2)])
        replies, wait_s = cluster.timed_pull(asker, NAMES[1:3], first(2))
        expect_names(replies, "worker-2")
        expect_reason(replies, "worker-1", Reason.WRONG_SIZE)
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
            expect_reason(replies, "worker-0", Reason.NOT_FINITE)
            expect_reason(replies, "worker-1", Reason.NOT_FINITE)
            cluster.close()


def bytes_that_are_no_such_vector_are_silence(cluster: Cluster) -> None:
    """Bytes that are no vector as was asked for count as silence."""
    for lie in (b"", b"abc", b"x" * 39, b"x" * 41, b"\xff" * 40):
        (asker, *_), _ = cluster.start_all([Ready(lie), Ready(lie), ready(2)])
        replies = cluster.pull(asker, NAMES[:3], first(3))
        expect_names(replies, "worker-2")
        expect_silent(replies, "worker-0", "worker-1")
        cluster.close()


CHECKS = (
    who_is_past_the_step_says_so, who_is_refused_is_told_so, another_length_is_silence,
    numbers_that_are_not_finite_are_silence, bytes_that_are_no_such_vector_are_silence,
)  # fmt: skip
