"""The lies of attackers that see no other vector: constants, noise, reversal, silence, labels."""

import numpy as np
import pytest

import garfield
from garfield.attacks import ATTACKS, View, label_flip, parse

OWN = np.array([1.5, -2.0, 0.25, 8.0], np.float32)


def told(text, own=OWN, seed=0):
    return parse(text)(View(own=own, n=5, f=1, rng=np.random.default_rng(seed)))


@pytest.mark.parametrize(
    ("text", "lie"),
    [
        ("zero", [0, 0, 0, 0]),
        ("constant", [-100, -100, -100, -100]),
        ("constant(value=3)", [3, 3, 3, 3]),
        ("inf", [np.inf, np.inf, np.inf, np.inf]),
        ("nan", [np.nan, np.nan, np.nan, np.nan]),
        ("reverse", [-150, 200, -25, -800]),
        ("reverse(factor=-2)", [-3, 4, -0.5, -16]),
        ("sign-flip", [-1.5, 2, -0.25, -8]),
        ("drop(share=0)", [1.5, -2, 0.25, 8]),
        ("label-flip", [1.5, -2, 0.25, 8]),
    ],
)
def test_a_simple_lie_is_what_its_name_says(text, lie):
    np.testing.assert_array_equal(told(text), np.array(lie, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_is_finite_alone_and_infinite_when_added(dtype):
    lie = told("huge", np.zeros(4, dtype))
    assert np.isfinite(lie).all()
    assert np.abs(lie).min() > 0.89 * np.finfo(dtype).max
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(lie + lie, [np.inf, -np.inf, np.inf, -np.inf])


def test_random_values_have_the_scale_they_were_given():
    lie = told("random(scale=3)", np.zeros(100_000, np.float32))
    assert lie.mean() == pytest.approx(0, abs=0.05)
    assert lie.std() == pytest.approx(3, rel=0.02)


def test_gaussian_noise_is_as_large_as_the_honest_vector_varies():
    own = 10 + 2 * np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    noise = told("gaussian(scale=0.5)", own) - own
    assert noise.mean() == pytest.approx(0, abs=0.02)
    assert noise.std() == pytest.approx(0.5 * own.std(), rel=0.02)
    assert np.corrcoef(noise, own)[0, 1] == pytest.approx(0, abs=0.02)


def test_noise_differs_from_attacker_to_attacker():
    rng = np.random.default_rng(0)
    for name in ("random", "gaussian"):
        first, second = ATTACKS[name].rows([OWN, OWN], f=2, rng=rng)
        assert not np.array_equal(first, second)


def test_a_dropped_reply_is_silence_and_a_share_of_it_is_zeros():
    own = np.ones(1000, np.float32)
    assert told("drop", own) is None
    lie = told("drop(share=0.3)", own)
    assert np.count_nonzero(lie == 0) == 300
    assert np.count_nonzero(lie == 1) == 700
    assert not np.array_equal(lie, told("drop(share=0.3)", own, seed=1))


@pytest.mark.parametrize("name", ["reverse", "sign-flip", "gaussian", "drop(share=0.5)"])
def test_an_honest_vector_that_is_broken_does_not_crash_the_liar(name):
    for broken in (np.nan, np.inf, -np.inf):
        assert told(name, np.array([broken, 1.0, broken, -2.0], np.float32)).shape == (4,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_there_are_stay_finite_when_reversed(dtype):
    most = np.finfo(dtype).max
    lie = told("reverse", np.array([most, -most, most / 1e6, 0], dtype))
    np.testing.assert_allclose(lie, np.array([-most, most, -most / 1e4, 0], dtype), rtol=1e-6)


def test_label_flip_turns_labels_upside_down():
    labels = np.array([0, 1, 9, 5], np.uint8)
    np.testing.assert_array_equal(label_flip.labels(labels, 10), [9, 8, 0, 4])
    np.testing.assert_array_equal(labels, [0, 1, 9, 5])
    assert label_flip.kind == "data"


def test_label_flip_takes_tensors_too():
    torch = pytest.importorskip("torch")
    assert label_flip.labels(torch.tensor([0, 2, 1]), 3).tolist() == [2, 0, 1]


def test_a_label_beyond_the_classes_is_refused():
    with pytest.raises(garfield.InputError, match=r"from 1 to 10, not within 0\.\.9"):
        label_flip.labels(np.array([1, 10]), 10)


def test_an_attack_on_vectors_trains_on_true_labels():
    labels = np.array([3, 1])
    for name in ATTACKS:
        if ATTACKS[name].kind == "vector":
            assert ATTACKS[name].labels(labels, 10) is labels
