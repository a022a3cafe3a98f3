"""Which blocks are asked for when: a made-up link, and a clock that is an argument."""

import numpy as np
import pytest

from garfield.transport.datagrams.links import TRIES
from garfield.transport.datagrams.packets import Window
from garfield.transport.datagrams.windows import IN_FLIGHT, Windows, missing_after, partition

RTT_S = 0.002


def windows(blocks):
    return Windows([*partition(blocks, 8)])


def fetch(windows, *, block_lost=lambda at: False, request_lost=lambda number: False):
    """Run a transfer over a link that keeps the order; who came, when it was over, requests."""
    now, came, requests, most = 0.0, set(), 0, 0
    under_way = []  # (when it arrives, block)
    while not windows.done:
        for first, size in windows.due(now):
            if not request_lost(requests):
                arrives = [(now + RTT_S, at) for at in range(first, first + size)]
                under_way += [(when, at) for when, at in arrives if not block_lost(at)]
            requests += 1
        most = max(most, len(under_way))
        if under_way and under_way[0][0] <= now + windows.next_s(now):
            now, at = under_way.pop(0)
            if at not in came:
                came.add(at)
                windows.came(at, now)
        else:
            now += windows.next_s(now)
        assert now < 60
    return came, now, requests, most


@pytest.mark.parametrize("blocks", [1, 7, 8, 9, 39, 1000])
def test_a_clean_link_brings_everything_with_one_request_a_window(blocks):
    came, _, requests, most = fetch(windows(blocks))
    assert came == set(range(blocks))
    assert requests == -(-blocks // 8)
    assert most <= 8 * IN_FLIGHT  # what is under way fits into a buffer


def test_windows_are_of_nearly_the_same_size():
    assert [window.size for window in partition(17, 8)] == [6, 6, 5]
    for blocks in range(1, 60):
        dealt = [*partition(blocks, 8)]
        assert [at for first, size in dealt for at in range(first, first + size)] == [
            *range(blocks)
        ]
        sizes = {window.size for window in dealt}
        assert max(sizes) <= 8
        assert max(sizes) - min(sizes) <= 1


def test_what_is_missing_in_the_end_can_be_told_from_what_is_dropped_at_each_asking():
    random = np.random.default_rng(1)
    for share in (0.1, 0.5, 0.9):
        dropped = random.random((TRIES, 40)) < share
        sent = np.zeros(40, int)

        def lost(at, sent=sent, dropped=dropped):
            sent[at] += 1
            return dropped[sent[at] - 1, at]

        came, *_ = fetch(windows(40), block_lost=lost)
        assert came == set(np.flatnonzero(~missing_after(dropped, 8)))


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_lost_blocks_are_neither_asked_for_again_nor_waited_for_long(loss):
    lost = np.random.default_rng(0).random(800) < loss
    came, took_s, requests, _ = fetch(windows(800), block_lost=lambda at: lost[at])
    assert came == set(np.flatnonzero(~lost))
    assert requests == 100
    assert took_s < 100 * (RTT_S + 0.05) / 2


def test_a_lost_request_is_repeated_and_costs_no_block():
    came, _, requests, _ = fetch(windows(80), request_lost=lambda number: number % 3 == 0)
    assert came == set(range(80))
    assert requests > 10


def test_a_window_that_was_overtaken_is_asked_for_again_at_once_but_once():
    some = windows(24)
    assert len(some.due(0.0)) == 2
    some.came(8, RTT_S)
    assert some.due(RTT_S) == [Window(0, 8)]
    some.came(9, RTT_S)
    assert some.due(RTT_S) == []
    assert some.next_s(RTT_S) > 0.04


def test_a_dead_peer_is_asked_a_few_times_and_then_left():
    came, took_s, requests, _ = fetch(windows(16), request_lost=lambda number: True)
    assert not came
    assert requests == 2 * TRIES
    assert took_s < 2


def test_a_block_that_comes_late_still_counts_and_breaks_nothing():
    some = windows(16)
    assert some.due(0.0) == [Window(0, 8), Window(8, 8)]
    some.came(15, 0.01)  # overtook all others
    some.came(3, 0.02)
    some.came(200, 0.02)  # no such block
    some.due(10.0)
    assert some.done
