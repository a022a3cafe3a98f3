"""Peers that start late, end and come back; and that closing leaves nothing behind."""

from __future__ import annotations

import os
import threading

from garfield.core.errors import GarfieldError
from garfield.core.silence import Reason
from garfield.testing.network import (
    GRADIENT,
    NAMES,
    Cluster,
    PlainOutbox,
    eventually,
    expect_names,
    expect_reason,
    expect_row,
    expect_silent,
    expect_soon,
    ready,
    vector,
)
from garfield.testing.promises import expect, refused
from garfield.transport.contract import Key, first


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
    expect_reason(replies, "worker-1", Reason.NO_ANSWER)


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


CHECKS = (
    a_peer_that_starts_late_is_waited_for, a_peer_that_never_starts_is_silent,
    a_peer_that_starts_late_is_silent_for_what_it_does_then, a_peer_that_comes_back_is_found_again,
    a_peer_that_comes_back_meanwhile_is_asked_again, closing_leaves_nothing, closing_ends_a_pull,
    closing_twice_is_closing_once, successors_are_left_alone, a_transport_serves_one_outbox,
)  # fmt: skip
