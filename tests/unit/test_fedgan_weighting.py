"""How much each device counts, and how much it does."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.fedgan.load import Load, LoadModel, drawn
from garfield.fedgan.weighting import RoundShares, kl_divergence, scores, weights

FIGURE = np.array([[8, 6, 4, 0], [5, 4, 1, 0], [0, 2, 4, 7], [3, 2, 3, 1]])  # Figure 6.4

some_counts = st.lists(
    st.lists(st.integers(0, 40), min_size=4, max_size=4).filter(any), min_size=1, max_size=8
).map(np.array)


def shares(divergence, samples, load=None, n=None):
    divergence, samples = np.array(divergence, float), np.array(samples, float)
    load = np.ones_like(divergence) if load is None else np.array(load, float)
    return RoundShares(divergence, samples, samples.sum() if n is None else n, load)


def test_divergence_is_that_of_equation_6_1():
    Q = FIGURE.sum(axis=0) / 50
    by_hand = [
        sum(x / row.sum() * log(x / row.sum() / q) for x, q in zip(row, Q, strict=True) if x)
        for row in FIGURE
    ]
    np.testing.assert_allclose(kl_divergence(FIGURE), by_hand, rtol=1e-12)
    np.testing.assert_allclose(scores(FIGURE), np.array([18, 10, 13, 9]) / 50 * by_hand, rtol=1e-12)


@given(some_counts)
def test_divergence_is_never_negative_and_zero_for_everybodys_shares(counts):
    found = kl_divergence(counts)
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(
        kl_divergence(3 * counts.sum(axis=0), counts.sum(axis=0)), 0, atol=1e-12
    )


def test_one_class_of_ten_diverges_by_log_ten():
    assert kl_divergence(np.eye(10, dtype=int))[3] == pytest.approx(log(10))


def test_a_class_that_nobody_else_declares_is_infinitely_far_and_weighs_nothing():
    far = kl_divergence([[1, 1], [2, 0]], everybody=[5, 0])
    assert far[0] == np.inf
    np.testing.assert_array_equal(weights("kl", shares(far, [2, 2])), [0, 1])


def test_no_samples_have_no_distribution():
    with pytest.raises(InputError, match="without samples"):
        kl_divergence([[1, 2], [0, 0]])


def test_the_default_falls_with_divergence_and_rises_with_load():
    found = weights("kl", shares([0.0, 1.0, 1.0], [1, 1, 1], load=[1, 1, 0.5]))
    total = 1 + 1.5 * exp(-1)
    np.testing.assert_allclose(found, [1 / total, exp(-1) / total, exp(-1) / 2 / total])


def test_as_printed_weights_are_nearly_flat_and_may_favour_the_more_divergent():
    by_default = weights("kl", shares([0.7, 1.6], [3000, 400], n=100_000))
    as_printed = weights("thesis", shares([0.7, 1.6], [3000, 400], n=100_000))
    assert 0.48 < as_printed.min() < as_printed.max() < 0.52
    assert as_printed[1] > as_printed[0]
    assert by_default[0] > 0.7
    expected = np.exp([-0.03 * 0.7, -0.004 * 1.6])
    np.testing.assert_allclose(as_printed, expected / expected.sum())


def test_plain_federated_learning_weighs_all_alike_or_by_samples():
    given_ = shares([0.1, 5.0], [30, 10], load=[1, 0.5])
    np.testing.assert_array_equal(weights("uniform", given_), [0.5, 0.5])
    np.testing.assert_array_equal(weights("samples", given_), [0.75, 0.25])
    np.testing.assert_array_equal(weights("fedavg", given_), [0.75, 0.25])


@given(some_counts, st.sampled_from(["kl", "thesis", "uniform", "samples"]))
def test_weights_add_up_to_one_and_none_is_negative(counts, name):
    found = weights(name, shares(kl_divergence(counts), counts.sum(axis=1)))
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()


def test_divergences_too_large_for_exp_are_still_told_apart():
    np.testing.assert_allclose(
        weights("kl", shares([5000, 5001], [1, 1])), [0.731, 0.269], atol=1e-3
    )


def test_an_unknown_weighting_and_weights_without_a_sum_are_refused():
    with pytest.raises(UnknownName, match=r"unifrom is not a weighting. Did you mean uniform\?"):
        weights("unifrom", shares([0], [1]))
    with pytest.raises(InputError, match="have no sum to be divided by"):
        weights("samples", shares([0, 0], [0, 0]))


# -- load -------------------------------------------------------------------------------------

FULL = LoadModel(Load(batch=50, steps=30), memory_mb=1000, compute=2.0)


@pytest.mark.parametrize(
    ("memory", "compute", "load"),
    [
        (1000, 2.0, Load(50, 30)),
        (1e9, 1e9, Load(50, 30)),
        (500, 2.0, Load(25, 30)),
        (1000, 1.0, Load(50, 15)),
        (1e-6, 1e-6, Load(1, 1)),
    ],
)
def test_batch_goes_with_memory_and_steps_with_compute(memory, compute, load):
    assert FULL.of(memory, compute) == load


def test_load_is_relative_to_the_full_one():
    assert FULL.of(500, 1.0).relative(FULL.full) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "wrong", [{"full": Load(0, 1)}, {"full": Load(1, 0)}, {"memory_mb": 0}, {"compute": -1}]
)
def test_a_full_load_is_positive(wrong):
    with pytest.raises(ConfigError, match="needs a positive"):
        LoadModel(**({"full": Load(1, 1)} | wrong))


@given(samples=st.integers(1, 60), batch=st.integers(1, 60), seed=st.integers(0, 9))
def test_batches_repeat_samples_only_where_there_are_too_few(samples, batch, seed):
    found = drawn(samples, batch, np.random.default_rng(seed))
    assert len(found) == batch
    assert 0 <= found.min() <= found.max() < samples
    if batch <= samples:
        assert len(set(found.tolist())) == batch
