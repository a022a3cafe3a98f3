"""The thesis's engine for skewed data, and what devices declare of what they have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.metadata import (
    MOST_SAMPLES,
    DeviceMetadata,
    MetadataTable,
    NoisedCounts,
    noised,
)
from garfield.fedgan.partition import class_counts, divided, skewed, skewed_counts


def rng(seed=0):
    return np.random.default_rng(seed)


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=12).filter(any),
    devices=st.integers(1, 60),
    max_class=st.integers(1, 15),
    max_samples=st.integers(1, 400),
    seed=st.integers(0, 50),
)
def test_counts_keep_to_the_bounds_of_each_device(sizes, devices, max_class, max_samples, seed):
    counts = skewed_counts(
        sizes, devices=devices, max_class=max_class, max_samples=max_samples, rng=rng(seed)
    )
    assert counts.shape == (devices, len(sizes))
    assert (counts <= np.array(sizes)).all()
    for i, row in enumerate(counts, start=1):
        most_classes = max(1, int(max_class * i / devices))
        most_samples = max(1, min(i**2, int(max_samples * i / devices)))
        assert 1 <= np.count_nonzero(row) <= most_classes
        assert row.max() <= most_samples


def test_every_number_within_the_bounds_is_drawn_and_each_class_gets_its_own():
    counts = skewed_counts([10_000] * 10, devices=4000, max_class=10, max_samples=4000, rng=rng())
    richest = counts[-400:]
    assert set(np.count_nonzero(richest, axis=1)) >= set(range(1, 10))  # and 10 for the last alone
    assert richest.max() > 3900
    several = richest[np.count_nonzero(richest, axis=1) == 10]
    assert (np.ptp(several, axis=1) > 0).all()
    shares = np.count_nonzero(counts, axis=0) / np.count_nonzero(counts)
    assert shares.min() > 0.09  # no class is preferred


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=200).map(np.array),
    devices=st.integers(1, 20),
    seed=st.integers(0, 50),
)
def test_shares_are_real_samples_of_no_device_twice(labels, devices, seed):
    shares = skewed(labels, devices=devices, max_class=5, max_samples=50, rng=rng(seed))
    again = skewed(labels, devices=devices, max_class=5, max_samples=50, rng=rng(seed))
    assert len(shares) == devices
    for share, same in zip(shares, again, strict=True):
        assert len(share)
        assert (np.diff(share) > 0).all()
        assert share[0] >= 0
        assert share[-1] < len(labels)
        np.testing.assert_array_equal(share, same)
    counts = class_counts(labels, shares, 6)
    np.testing.assert_array_equal(counts.sum(axis=1), [len(share) for share in shares])


def test_a_sample_may_lie_on_several_devices():
    shares = skewed(np.zeros(20, np.int64), devices=9, max_class=1, max_samples=20, rng=rng())
    assert sum(map(len, shares)) > 20
    assert len(shares[0]) == 1  # min(1², …)


def test_partitions_of_the_core_are_taken_as_they_are():
    labels = np.arange(100) % 5
    for how in ("iid", "dirichlet(alpha=5)"):
        shares = divided(how, labels, devices=4, max_class=1, max_samples=1, rng=rng())
        assert sorted(np.concatenate(shares)) == list(range(100))
    assert len(divided("skewed", labels, devices=4, max_class=2, max_samples=9, rng=rng())) == 4


@pytest.mark.parametrize("wrong", [{"devices": 0}, {"max_class": 0}, {"max_samples": -1}])
def test_bounds_below_one_are_refused_by_name(wrong):
    numbers = {"devices": 4, "max_class": 2, "max_samples": 9} | wrong
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be at least 1"):
        skewed_counts([5, 5], **numbers, rng=rng())


def test_nothing_to_give_and_an_unknown_partition_are_refused():
    with pytest.raises(InputError, match="no sample"):
        skewed(np.array([], np.int64), devices=2, max_class=1, max_samples=1, rng=rng())
    with pytest.raises(ConfigError, match=r"skewd is not a partition. There are: skewed, iid"):
        divided("skewd", [0, 1], devices=1, max_class=1, max_samples=1, rng=rng())


# -- metadata ---------------------------------------------------------------------------------


def test_what_is_sent_is_what_is_read():
    declared = DeviceMetadata((3, 0, 4), memory_mb=512.0, compute=0.5)
    assert DeviceMetadata.read("device-1", declared.as_json(), classes=3) == declared
    assert set(declared.as_json()) == {"samples", "memory_mb", "compute"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"samples": [3, -1]}, "device-7 declares -1 samples of class 1. A count is a whole"),
        ({"samples": [3, 1.5]}, "declares 1.5 samples of class 1"),
        ({"samples": [3, True]}, "declares True samples of class 1"),
        ({"samples": [3, float("nan")]}, "declares nan samples"),
        ({"samples": [0, 0]}, "device-7 has no sample: it cannot train. Leave it out"),
        ({"samples": [MOST_SAMPLES, 1]}, "declares 10000001 samples, more than the 10000000"),
        ({"samples": [1, 2, 3]}, "samples of 3 classes, and there are 2"),
        ({"samples": "12"}, "a list of samples per class"),
        ({"memory_mb": 0}, "memory_mb 0. It must be positive"),
        ({"memory_mb": float("inf")}, "memory_mb inf"),
        ({"compute": float("nan")}, "compute nan"),
        ({"compute": "fast"}, "compute 'fast'"),
        ({"pictures": []}, "must declare samples, memory_mb and compute"),
    ],
)
def test_what_cannot_be_true_is_refused_with_the_devices_name(content, message):
    sent = DeviceMetadata((1, 2)).as_json() | content
    with pytest.raises(InputError, match=message):
        DeviceMetadata.read("device-7", sent, classes=2)


@pytest.mark.parametrize("content", [None, 3, [], "samples", {"samples": [1, 2]}])
def test_what_is_no_metadata_at_all_is_refused(content):
    with pytest.raises(InputError, match="must declare samples, memory_mb and compute"):
        DeviceMetadata.read("device-7", content, classes=2)


def test_a_class_that_nobody_has_is_named():
    table = MetadataTable.of([DeviceMetadata((1, 0, 2)), DeviceMetadata((4, 0, 0))], ["a", "b"])
    np.testing.assert_array_equal(table.per_class, [5, 0, 2])
    with pytest.raises(ConfigError, match=r"No device has a sample of: coat. Nobody can learn it"):
        table.check_classes(["shirt", "coat", "bag"])
    MetadataTable.of([DeviceMetadata((1, 1))], ["a"]).check_classes(["x", "y"])


def test_a_table_checks_every_row():
    with pytest.raises(InputError, match="b declares -4"):
        MetadataTable.of([DeviceMetadata((1, 0)), DeviceMetadata((-4, 9))], ["a", "b"])
    with pytest.raises(InputError, match="There is no device"):
        MetadataTable.of([], [])


def test_noise_on_counts_has_the_spread_it_promises_and_no_drift():
    epsilon = 0.5
    counts = noised([1000] * 20_000, epsilon, rng())
    off = np.array(counts) - 1000
    q = np.exp(-epsilon)
    assert abs(off.mean()) < 0.1
    assert off.var() == pytest.approx(2 * q / (1 - q) ** 2, rel=0.05)
    # neighbouring counts are told apart by a factor of e^epsilon at most
    there, beside = np.mean(off == 0), np.mean(off == 1)
    assert there / beside == pytest.approx(np.exp(epsilon), rel=0.1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5).filter(any), st.integers(0, 200))
def test_noised_counts_can_still_be_declared(samples, seed):
    counts = noised(samples, 0.3, rng(seed))
    DeviceMetadata(counts).check("device", len(samples))


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf")])
def test_noise_needs_a_positive_epsilon(epsilon):
    with pytest.raises(ConfigError, match="must be positive"):
        noised([1, 2], epsilon, rng())


def test_a_device_of_its_own_noises_the_same_counts_once():
    told = NoisedCounts(0.1, rng(1))
    first = told.of((100, 200, 0))
    assert first != (100, 200, 0)
    assert all(told.of((100, 200, 0)) == first for _ in range(20))  # no mean of many is the truth
    assert told.of((0, 0, 0)) == (0, 0, 0)
    assert NoisedCounts(None).of((1, 2)) == (1, 2)
    drawn = {NoisedCounts(0.01).of((5000, 5000)) for _ in range(5)}
    assert len(drawn) > 1  # nobody knows its seed
