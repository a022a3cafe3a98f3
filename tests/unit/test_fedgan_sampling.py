"""Which devices train: the order of balanced sampling, its cap, and what it is worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.fedgan.partition import skewed_counts
from garfield.fedgan.sampling import (
    BalancedSampling,
    SamplingHistory,
    kl_of_seen,
    round_size,
    sampler,
)

FIGURE = np.array([[8, 6, 4, 0], [5, 4, 1, 0], [0, 2, 4, 7], [3, 2, 3, 1]])  # Figure 6.4


def rounds(counts, size, number, name="balanced", seed=0):
    """The devices of each round, and the history after them."""
    chooses, history = sampler(name, counts), SamplingHistory(*counts.shape)
    rng, chosen = np.random.default_rng(seed), []
    for _ in range(number):
        chosen.append(chooses.choose(history, size, rng))
        history.record(chosen[-1], chosen[-1], counts)
    return chosen, history


def literal(counts, history, size):
    """Balanced sampling as it is described, one device after the other, without any sorting."""
    share = counts.sum(axis=0) / counts.sum()
    D = [
        sum(p * np.log(p / q) for p, q in zip(row / row.sum(), share, strict=True) if p)
        for row in counts
    ]
    seen, chosen = history.seen.astype(float), []
    most = max(1, int(2 * (history.asked.sum() + size) / len(counts)))
    while len(chosen) < size:
        for c in sorted(np.flatnonzero(share), key=lambda c: (seen[c] / share[c], c)):
            able = [
                k for k in range(len(counts))
                if counts[k, c] and k not in chosen and history.asked[k] < most
            ]  # fmt: skip
            if able:
                break
        else:
            return chosen
        best = min(
            able,
            key=lambda k: (history.asked[k] > 0, -counts[k].sum(), round(D[k], 9), k),
        )
        chosen.append(best)
        seen += counts[best]
    return chosen


def test_the_running_example_of_figure_6_4():
    chosen, history = rounds(FIGURE, 2, 2)
    assert [{k + 1 for k in each} for each in chosen] == [{1, 3}, {2, 4}]
    np.testing.assert_array_equal(history.seen, FIGURE.sum(axis=0))


@pytest.mark.slow
@given(
    counts=st.lists(
        st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=2, max_size=12
    ).map(np.array),
    data=st.data(),
)
def test_the_fast_way_is_the_described_way(counts, data):
    size = data.draw(st.integers(1, len(counts)))
    chooses, history = BalancedSampling(counts), SamplingHistory(*counts.shape)
    for _ in range(6):
        found = chooses.choose(history, size, np.random.default_rng(0))
        assert found == literal(counts, history, size)
        took_part = data.draw(st.lists(st.sampled_from(found), unique=True))
        history.record(found, took_part, counts)


def test_larger_then_more_balanced_then_earlier_devices_come_first():
    counts = np.array([[2, 2], [1, 3], [4, 4], [5, 3], [4, 4]])
    chosen, _ = rounds(counts, 5, 1)
    assert chosen[0] == [2, 4, 3, 0, 1]


def test_a_small_class_is_not_least_seen_for_being_small():
    counts = np.array([[1000, 10]] * 4 + [[0, 30]])
    _, history = rounds(counts, 1, 5)
    assert history.asked.tolist() == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_the_only_holder_of_a_class_is_not_asked_every_time(size):
    counts = np.zeros((80, 10), np.int64)
    counts[:, :9] = np.random.default_rng(1).integers(1, 300, (80, 9))
    counts[7, 9] = 30
    _, history = rounds(counts, size, 200)
    fair = 200 * size / 80
    assert history.asked[7] <= 2 * fair
    assert history.asked.max() <= max(1, 2 * fair)
    assert history.asked.sum() == 200 * size  # a round is always full


@pytest.mark.slow
@given(
    devices=st.integers(2, 30),
    size=st.integers(1, 30),
    seed=st.integers(0, 30),
)
def test_rounds_are_full_nobody_is_asked_twice_in_one_nor_beyond_twice_its_share(
    devices, size, seed
):
    size = min(size, devices)
    rng = np.random.default_rng(seed)
    counts = skewed_counts([50] * 5, devices=devices, max_class=4, max_samples=40, rng=rng)
    chosen, history = rounds(counts, size, 25)
    assert all(len(set(each)) == size for each in chosen)
    assert history.asked.max() <= max(1, 2 * 25 * size / devices)


def test_a_device_that_never_answers_gives_way():
    counts = np.array([[9, 9], [1, 1], [2, 2]])
    chooses, history = BalancedSampling(counts), SamplingHistory(3, 2)
    asked = []
    for _ in range(6):
        found = chooses.choose(history, 1, np.random.default_rng(0))
        asked += found
        history.record(found, [k for k in found if k != 0], counts)
    assert asked[:3] == [0, 2, 1]
    assert asked.count(0) <= 4


def test_a_class_that_nobody_has_is_not_waited_for():
    chosen, _ = rounds(np.array([[3, 0, 2], [1, 0, 4]]), 2, 3)
    assert all(sorted(each) == [0, 1] for each in chosen)


def test_an_epoch_takes_fewer_rounds_than_by_chance():
    """Table 6.1's first set-up: 80 devices, 2 a round, max_class 5, max_samples 3000."""
    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        counts = skewed_counts([6000] * 10, devices=80, max_class=5, max_samples=3000, rng=rng)
        needed = {}
        for name in ("balanced", "random"):
            _, history = rounds(counts, 2, 300, name, seed)
            needed[name] = 300 * counts.sum() / history.seen.sum()  # rounds an epoch
        gains.append(needed["random"] / needed["balanced"])
    assert np.mean(gains) > 1.3


def test_the_servers_view_is_nearer_to_the_data_than_by_chance():
    rng = np.random.default_rng(3)
    counts = skewed_counts([6000] * 10, devices=80, max_class=5, max_samples=3000, rng=rng)
    found = {name: rounds(counts, 2, 20, name)[1] for name in ("balanced", "random")}
    assert kl_of_seen(found["balanced"], counts) < kl_of_seen(found["random"], counts)
    assert kl_of_seen(SamplingHistory(80, 10), counts) is None


def test_random_sampling_follows_its_generator_and_treats_all_alike():
    first, history = rounds(FIGURE, 2, 400, "random", seed=5)
    assert first == rounds(FIGURE, 2, 400, "random", seed=5)[0]
    assert history.asked.min() > 150
    assert all(len(set(each)) == 2 for each in first)


@pytest.mark.parametrize(
    ("fraction", "devices", "size"), [(0.025, 80, 2), (0.29, 100, 29), (1, 7, 7)]
)
def test_a_fraction_of_devices(fraction, devices, size):
    assert round_size(fraction, devices) == size


@pytest.mark.parametrize(("fraction", "devices"), [(0.025, 39), (0, 80), (-1, 80), (1.1, 80)])
def test_less_than_a_device_or_more_than_all_is_refused(fraction, devices):
    with pytest.raises(ConfigError, match="Set fraction within"):
        round_size(fraction, devices)


def test_devices_without_samples_and_unknown_samplings_are_refused():
    with pytest.raises(InputError, match="at least one sample on every device"):
        BalancedSampling(np.array([[1, 2], [0, 0]]))
    with pytest.raises(UnknownName, match="Did you mean balanced"):
        sampler("ballanced", FIGURE)
