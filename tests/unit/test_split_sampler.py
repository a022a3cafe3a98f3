from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError
from garfield.split.client.sampler import Place, Sampler

data_sets = st.lists(st.integers(1, 9), min_size=1, max_size=7).map(tuple)


def samples(pieces):
    return [(piece.object, index) for piece in pieces for index in piece.indices]


def order(sampler, start=Place()):  # noqa: B008 (frozen)
    return [samples(share.pieces) for share in sampler.shares(start)]


@given(counts=data_sets, batch=st.integers(1, 30), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_visits_every_sample_once_in_full_batches(counts, batch, seed, epoch):
    batches = order(Sampler(counts, batch, seed), Place(epoch))
    seen = Counter(chain(*batches))
    assert seen == Counter((o, i) for o, count in enumerate(counts) for i in range(count))
    assert [len(each) for each in batches[:-1]] == [batch] * (len(batches) - 1)
    assert len(batches) == Sampler(counts, batch, seed).batches


@given(counts=data_sets, batch=st.integers(4, 20), ranks=st.integers(1, 4), epoch=st.integers(0, 2))
def test_ranks_share_the_batches_of_one_rank_between_them(counts, batch, ranks, epoch):
    whole = order(Sampler(counts, batch, 7), Place(epoch))
    parts = [order(Sampler(counts, batch, 7, rank, ranks), Place(epoch)) for rank in range(ranks)]
    assert [list(chain(*part)) for part in zip(*parts, strict=True)] == whole
    for part in zip(*parts, strict=True):
        sizes = [len(each) for each in part]
        assert max(sizes) - min(sizes) <= 1


@given(
    counts=data_sets,
    batch=st.integers(4, 20),
    before=st.integers(1, 4),
    after=st.integers(1, 4),
    stop=st.integers(0, 20),
)
def test_a_run_resumed_with_other_ranks_goes_on_in_the_same_order(
    counts, batch, before, after, stop
):
    whole = order(Sampler(counts, batch, 3))
    stop = min(stop, len(whole))
    done = [[] for _ in range(stop)]
    place = Place()
    for rank in range(before):
        shares = list(Sampler(counts, batch, 3, rank, before).shares(Place()))[:stop]
        for batch_so_far, share in zip(done, shares, strict=True):
            batch_so_far += samples(share.pieces)
        place = shares[-1].end if shares else place
    if place.epoch:  # the epoch was done
        assert done == whole
        return
    rest = [order(Sampler(counts, batch, 3, rank, after), place) for rank in range(after)]
    assert done + [list(chain(*part)) for part in zip(*rest, strict=True)] == whole


@given(counts=data_sets, batch=st.integers(2, 20), ranks=st.integers(1, 2), start=st.integers(0, 3))
def test_requests_hold_what_the_batches_need_and_visit_an_object_once(counts, batch, ranks, start):
    for rank in range(ranks):
        sampler = Sampler(counts, batch, 1, rank, ranks)
        place = Place(0, min(start * batch, sampler.total))
        asked = list(sampler.requests(place))
        assert samples(asked) == list(chain(*order(sampler, place)))
        assert len(asked) <= len(counts)
        assert len({piece.object for piece in asked}) == len(asked)


def test_order_is_fixed_by_seed_and_epoch_and_changes_with_both():
    sampler = Sampler((50, 50, 50), 30, seed=1)
    assert order(sampler) == order(Sampler((50, 50, 50), 30, seed=1))
    assert order(sampler) != order(sampler, Place(1))
    assert order(sampler) != order(Sampler((50, 50, 50), 30, seed=2))


def test_the_batch_does_not_change_the_order():
    one, other = (Sampler((8, 3, 5), batch, 5) for batch in (2, 11))
    assert list(chain(*order(one))) == list(chain(*order(other)))


def test_this_order_is_the_same_on_every_machine_and_version():
    first = next(iter(Sampler((4, 4, 4), 6, seed=0).shares(Place())))
    assert samples(first.pieces) == [(2, 1), (2, 0), (2, 2), (2, 3), (1, 3), (1, 1)]


def test_an_epoch_ends_at_the_start_of_the_next():
    *_, last = Sampler((5, 5), 4).shares(Place(2))
    assert (last.batch, last.end) == (2, Place(3))
    *_, last = Sampler((5, 5), 4, drop_last=True).shares(Place(2))
    assert (last.batch, last.end) == (4, Place(3))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"counts": ()}, "at least one sample"),
        ({"counts": (3, 0)}, "the smallest holds 0"),
        ({"rank": 2, "ranks": 2}, "within 0..1, got 2"),
        ({"batch": 1, "ranks": 2}, "number of ranks, 2, got 1"),
        ({"batch": 100, "drop_last": True}, "hold 12 samples"),
    ],
)
def test_what_cannot_be_sampled_is_refused_with_numbers(wrong, words):
    with pytest.raises(ConfigError, match=words):
        Sampler(**({"counts": (6, 6), "batch": 4} | wrong))
