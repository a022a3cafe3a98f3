"""Who gets which samples, and in which order they come."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.data import PARTITIONS, Batches, Dataset, digits, partition
from garfield.data.partitions import dirichlet, iid, one_class, parse, similarity

every_partition = pytest.mark.parametrize("name", PARTITIONS)

labels_of_some_classes = st.lists(st.integers(0, 5), min_size=1, max_size=200).map(np.array)


def dealt(name, labels, workers, seed=0):
    return PARTITIONS[name](labels, workers=workers, rng=np.random.default_rng(seed))


def dealt_or_refused(name, labels, workers, seed):
    """None, when the refusal says with which numbers and what to do."""
    try:
        return dealt(name, labels, workers, seed)
    except ConfigError as error:
        if not re.search(r"\d.*\b(fewer|at most \d+) workers", str(error)):
            raise
        return None


@every_partition
@given(labels=labels_of_some_classes, workers=st.integers(1, 20), seed=st.integers(0, 99))
def test_no_sample_is_given_twice_nobody_is_left_empty_and_all_are_used_where_promised(
    name, labels, workers, seed
):
    parts = dealt_or_refused(name, labels, workers, seed)
    if parts is None:
        return
    assert len(parts) == workers
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)
    given_out = np.concatenate(parts)
    assert len(np.unique(given_out)) == len(given_out)
    assert np.isin(given_out, np.arange(len(labels))).all()
    if PARTITIONS[name].complete:
        assert len(given_out) == len(labels)


@pytest.mark.slow
@every_partition
@given(labels=labels_of_some_classes.filter(lambda labels: len(labels) > 30))
def test_the_same_generator_deals_the_same_hands(name, labels):
    first, second = dealt(name, labels, 2, seed=7), dealt(name, labels, 2, seed=7)
    assert all(map(np.array_equal, first, second))


@every_partition
def test_another_generator_deals_other_hands(name):
    labels = np.arange(1000) % 4
    first, second = dealt(name, labels, 8, seed=0), dealt(name, labels, 8, seed=1)
    assert not all(map(np.array_equal, first, second))


@every_partition
def test_labels_are_never_written_to(name):
    labels = np.arange(100) % 5
    labels.flags.writeable = False
    dealt(name, labels, 4)  # or numpy would complain
    np.testing.assert_array_equal(labels, np.arange(100) % 5)


@given(count=st.integers(1, 300), workers=st.integers(1, 20))
def test_iid_shares_differ_by_one_sample_at_most(count, workers):
    if count < workers:
        return
    sizes = [len(part) for part in dealt("iid", np.zeros(count, int), workers)]
    assert max(sizes) - min(sizes) <= 1


def test_iid_workers_all_see_all_classes():
    labels = np.arange(10_000) % 10
    for part in dealt("iid", labels, 10):
        assert np.bincount(labels[part], minlength=10).min() > 60  # 100 are expected


def test_a_small_alpha_gives_each_worker_few_classes_and_a_large_one_all():
    labels = np.arange(10_000) % 10

    def largest_share(alpha):
        parts = dirichlet.bind(alpha=alpha)(labels, workers=10, rng=np.random.default_rng(0))
        tables = [np.bincount(labels[part], minlength=10) for part in parts]
        return np.mean([table.max() / table.sum() for table in tables])

    assert largest_share(1000.0) < 0.15
    assert largest_share(1.0) < largest_share(0.1)
    assert largest_share(0.1) > 0.4


def test_proportions_that_leave_somebody_with_nothing_are_drawn_again():
    labels = np.arange(40) % 2
    alone = 0
    for seed in range(20):
        parts = dirichlet.bind(alpha=0.5)(labels, workers=4, rng=np.random.default_rng(seed))
        alone += min(len(part) for part in parts) == 1
        assert all(len(part) for part in parts)
    assert alone  # it was close


def test_when_somebody_always_gets_nothing_the_error_says_how_many_and_what_to_do():
    labels = np.zeros(1000, int)  # one class, and nearly all of it goes to one worker
    with pytest.raises(
        ConfigError,
        match=r"dirichlet\(alpha=0.001\) left somebody without a sample in each of 100 draws, "
        r"\d+ of 50 workers in the last one \(1000 samples\). Raise alpha, or start fewer workers",
    ):
        dirichlet.bind(alpha=0.001)(labels, workers=50, rng=np.random.default_rng(0))


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf"), "much", True])
def test_alpha_must_be_a_positive_number(alpha):
    with pytest.raises(ConfigError, match=r"dirichlet\.alpha must be"):
        dirichlet.bind(alpha=alpha)(np.zeros(9, int), workers=2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("workers", [3, 10, 25])
def test_one_class_workers_see_one_class(workers):
    labels = digits().labels("train")
    parts = dealt("one-class", labels, workers)
    seen = [np.unique(labels[part]).tolist() for part in parts]
    assert seen == [[worker % 10] for worker in range(workers)]
    if workers >= 10:
        assert sum(map(len, parts)) == len(labels)


def test_workers_of_one_class_share_it_evenly():
    parts = dealt("one-class", np.array([4] * 7 + [9] * 5), 5)
    assert [len(part) for part in parts] == [3, 3, 2, 2, 2]


def test_a_class_too_small_to_share_is_named():
    with pytest.raises(ConfigError, match="share the 1 samples of class 8 between 2 of 4 workers"):
        dealt("one-class", np.array([3] * 20 + [8]), 4)


@every_partition
def test_more_workers_than_samples_are_refused_with_the_numbers(name):
    with pytest.raises(ConfigError, match=f"{name} .* 7 workers one of 6 samples. Start at most 6"):
        dealt(name, np.arange(6), 7)
    with pytest.raises(ConfigError, match="workers must be at least 1, got 0"):
        dealt(name, np.arange(6), 0)


@pytest.mark.parametrize("labels", [np.zeros((3, 2), int), np.zeros(5)])
def test_what_is_not_a_list_of_labels_is_refused(labels):
    with pytest.raises(InputError, match="whole-numbered labels in one dimension"):
        dealt("iid", labels, 2)


def test_partitions_are_found_by_name_with_their_parameters():
    assert parse("iid") is not None
    assert parse("dirichlet(alpha=0.1)") == dirichlet.bind(alpha=0.1)
    assert repr(parse("dirichlet(alpha=0.1)")) == "<partition dirichlet(alpha=0.1)>"
    assert (PARTITIONS["iid"], PARTITIONS["one-class"]) == (iid, one_class)
    with pytest.raises(UnknownName, match=r"dirichelt is not a partition\. Did you mean dirichlet"):
        parse("dirichelt(alpha=0.1)")
    with pytest.raises(UnknownName, match="beta is not a parameter of dirichlet"):
        parse("dirichlet(beta=0.1)")


def test_a_partition_of_ones_own_is_one_decorator():
    @partition("by-turns", complete=True)
    def by_turns(labels, *, workers, rng):
        return [np.arange(worker, len(labels), workers) for worker in range(workers)]

    try:
        first, second = dealt("by-turns", np.zeros(5, int), 2)
        assert (first.tolist(), second.tolist()) == ([0, 2, 4], [1, 3])
    finally:
        PARTITIONS.remove("by-turns")


def numbered(count=50):
    """Images whose pixel is their own number."""
    images = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1)
    return images, np.arange(count) % 3


def batches(indices, batch=4, seed=0):
    return Batches(*numbered(), indices, batch, seed)


shares = st.sets(st.integers(0, 49), min_size=1).map(sorted)


@given(indices=shares, batch=st.integers(1, 70), step=st.integers(0, 1000), seed=st.integers(0, 9))
def test_a_batch_depends_on_seed_and_step_alone(indices, batch, step, seed):
    used, fresh = batches(indices, batch, seed), batches(indices, batch, seed)
    for other in (0, step + 1, 3):
        used.batch(other)
    for mine, theirs in zip(used.batch(step), fresh.batch(step), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@given(indices=shares, batch=st.integers(1, 70))
def test_every_sample_of_the_share_is_seen_once_per_epoch(indices, batch):
    sampler, count = batches(indices, batch), len(indices)
    steps = -(-3 * count // batch)
    seen = np.concatenate([sampler.picked(step) for step in range(steps)])
    assert len(seen) == steps * batch
    for epoch in range(3):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == indices


def test_epochs_and_seeds_come_in_different_orders():
    sampler = batches(range(50), batch=50)
    assert not np.array_equal(sampler.picked(0), sampler.picked(1))
    assert not np.array_equal(sampler.picked(0), batches(range(50), 50, seed=1).picked(0))
    by_rank = [batches(range(50), 50, seed=(0, rank)).picked(0).tolist() for rank in range(3)]
    assert by_rank[0] != by_rank[1] != by_rank[2]


def test_images_and_labels_stay_together_and_come_as_floats_and_whole_numbers():
    x, y = batches(range(50), batch=20).batch(2)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((20, 1, 1, 1), np.float32, (20,), np.int64)
    np.testing.assert_array_equal(np.rint(x.ravel() * 255).astype(int) % 3, y)


def test_batches_of_a_data_set_are_normalised_as_it_says():
    images, labels = numbered()
    data = Dataset(images, labels, images[:5], labels[:5], tuple("abc"), mean=(0.1,), std=(0.2,))
    x, y = Batches.of(data, [7], batch=1, seed=0).batch(0)
    np.testing.assert_allclose(x.ravel(), (7 / 255 - 0.1) / 0.2, rtol=1e-6)
    assert y.tolist() == [1]
    x, _ = Batches.of(data, [4], batch=3, seed=0, split="test").batch(9)
    np.testing.assert_allclose(x.ravel(), (4 / 255 - 0.1) / 0.2, rtol=1e-6)


def test_an_order_that_was_handed_out_cannot_be_spoilt():
    sampler = batches(range(50))
    with pytest.raises(ValueError, match="read-only"):
        sampler.picked(0)[0] = 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"indices": []}, "at least one sample, got none"),
        ({"indices": [50]}, r"run from 50 to 50, not within 0\.\.49"),
        ({"indices": [-1, 3]}, "run from -1 to 3"),
        ({"batch": 0}, "at least 1 sample, got 0"),
        ({"seed": -4}, "must not be negative, got -4"),
    ],
)
def test_a_share_that_cannot_be_sampled_is_refused(settings, message):
    with pytest.raises((InputError, ConfigError), match=message):
        batches(**{"indices": range(50), **settings})


def test_steps_count_from_zero():
    with pytest.raises(InputError, match="Steps count from 0, got -1"):
        batches(range(50)).batch(-1)


def test_as_many_labels_as_images_are_needed():
    images, labels = numbered()
    with pytest.raises(InputError, match="50 inputs but 49 targets"):
        Batches(images, labels[1:], range(10), 4, 0)


@pytest.mark.parametrize(("gamma", "fewest", "most"), [(0.0, 1, 2), (0.5, 10, 10), (1.0, 10, 10)])
def test_similarity_deals_a_share_alike_and_the_rest_by_class(gamma, fewest, most):
    labels = np.arange(2000) % 10
    parts = similarity.bind(gamma=gamma)(labels, workers=12, rng=np.random.default_rng(0))
    seen = [len(np.unique(labels[part])) for part in parts]
    assert fewest <= min(seen)
    assert max(seen) <= most
    if gamma == 0.5:
        largest = [np.bincount(labels[part]).max() / len(part) for part in parts]
        assert min(largest) > 0.3


@pytest.mark.parametrize("gamma", [-0.1, 1.1, "a", True])
def test_a_similarity_that_is_no_share_is_refused(gamma):
    with pytest.raises(ConfigError, match=r"similarity\.gamma must be"):
        similarity.bind(gamma=gamma)(np.arange(9), workers=3, rng=np.random.default_rng(0))
