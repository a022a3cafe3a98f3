"""Every sample of an epoch once, however often workers and batch change on the way."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError
from garfield.elastic.job.cursor import Cursor, Division

sizes = st.tuples(st.integers(1, 7), st.integers(1, 9), st.none() | st.integers(1, 40))


def used(cursor, workers, batch, fixed_step=None):
    """What all workers train on in one step, fillers left out, and the place after it."""
    parts = [cursor.step(Division(r, workers, batch, fixed_step)) for r in range(workers)]
    assert len({part[-1].advance for part in parts}) == 1
    assert all(not piece.is_last for part in parts for piece in part[:-1])
    found = [i for part in parts for piece in part if piece.weight for i in piece.indices]
    assert len(found) == parts[0][-1].advance
    return found, cursor.after(parts[0][-1].advance)


@given(
    samples=st.integers(1, 60), seed=st.integers(0, 3), epoch=st.integers(0, 2),
    rescalings=st.lists(sizes, min_size=1, max_size=6),
)  # fmt: skip
def test_an_epoch_uses_every_sample_once_across_any_rescalings(samples, seed, epoch, rescalings):
    cursor, seen, step = Cursor(samples, seed, epoch), [], 0
    while cursor.epoch == epoch:
        found, cursor = used(cursor, *rescalings[step % len(rescalings)])
        seen += found
        step += 1
    assert sorted(seen) == list(range(samples))
    assert cursor == Cursor(samples, seed, epoch + 1)


@given(samples=st.integers(1, 60), one=sizes, other=sizes)
def test_who_is_there_does_not_change_the_order(samples, one, other):
    def order(size):
        cursor, seen = Cursor(samples, 5), []
        while cursor.epoch == 0:
            found, cursor = used(cursor, *size)
            seen += found
        return seen

    assert order(one) == order(other)


@given(samples=st.integers(1, 60), place=st.integers(0, 59), size=sizes)
def test_weighted_means_of_micro_batches_average_to_the_mean_of_the_step(samples, place, size):
    workers, batch, fixed = size
    cursor = Cursor(samples, 1, 0, min(place, samples - 1))
    values = np.random.default_rng(0).normal(size=samples)
    parts = [cursor.step(Division(r, workers, batch, fixed)) for r in range(workers)]
    by_worker = [sum(p.weight * values[list(p.indices)].mean() for p in part) for part in parts]
    assert np.mean(by_worker) == pytest.approx(values[used(cursor, *size)[0]].mean())


@given(samples=st.integers(1, 60), size=sizes)
def test_no_micro_batch_is_larger_than_the_batch_or_empty(samples, size):
    workers, batch, fixed = size
    for rank in range(workers):
        parts = list(Cursor(samples).micro_batches(Division(rank, workers, batch, fixed)))
        assert all(1 <= len(part.indices) <= batch for part in parts)
        assert sum(part.advance for part in parts) == samples


def test_a_fixed_step_is_the_same_samples_for_any_number_of_workers():
    steps = [used(Cursor(100, 3), workers, batch, 24)[0] for workers, batch in [(1, 8), (3, 8)]]
    assert steps[0] == steps[1]
    assert len(steps[0]) == 24


def test_a_place_survives_its_state_and_is_refused_in_other_data():
    cursor = Cursor(10, 7, 2, 4)
    assert Cursor(10).moved_to(cursor.state_dict()) == cursor
    with pytest.raises(ConfigError, match="10 samples an epoch, the data set here 11"):
        Cursor(11).moved_to(cursor.state_dict())


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(chain(*(p.indices for p in Cursor(50, seed, epoch).micro_batches(Division(0, 1, 8)))))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9
    assert all(Counter(order) == Counter(range(50)) for order in orders)


def test_an_empty_data_set_and_a_place_beyond_it_are_refused():
    with pytest.raises(ConfigError, match="empty"):
        Cursor(0)
    with pytest.raises(ConfigError, match="no place"):
        Cursor(5, used=5)
