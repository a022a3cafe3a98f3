"""Models of throughput: what they recover, and equation 4.2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.elastic.policy import Measurement
from garfield.elastic.policy.nonnegative import nonnegative
from garfield.elastic.policy.throughput import MODELS, efficiency, gains


def fitted(model, sizes, t, batch=64):
    found = tuple(Measurement(n, b, t(n, b), at_s=at) for at, (n, b) in enumerate(sizes))
    return MODELS[model](found, batch)


@pytest.mark.parametrize("model", MODELS)
def test_with_one_size_of_workers_every_model_says_in_proportion(model):
    t = fitted(model, [(2, 64), (2, 128)], lambda n, b: 100.0 * n)
    assert t(8) == pytest.approx(800)
    assert efficiency(t, 8) == 1.0


def test_the_measured_model_recovers_its_own_form():
    def truth(n, b):
        return 50 + 20 * n + 0.5 * n * b

    t = fitted("measured", [(2, 64), (4, 64), (8, 128), (16, 32)], truth, batch=128)
    assert t(5) == pytest.approx(truth(5, 128))
    assert efficiency(t, 5) == pytest.approx(truth(5, 128) / (5 * truth(1, 128)))


def test_the_thesis_model_is_additive_and_keeps_the_freshest_of_a_global_batch():
    def truth(n, b):
        return 50 + 20 * n + 0.5 * b

    sizes = [(2, 64), (4, 64), (8, 128)]
    assert fitted("thesis", sizes, truth, batch=128)(5) == pytest.approx(truth(5, 128))
    stale = (Measurement(4, 64, 1e6, at_s=0), Measurement(2, 128, 1e6, at_s=-1))
    fresh = tuple(Measurement(n, 64, truth(n, 64), at_s=n) for n in (2, 4, 8))
    assert MODELS["thesis"](stale + fresh, 64)(16) == pytest.approx(truth(16, 64))


def test_the_concave_model_recovers_a_step_time_that_grows_with_workers():
    def truth(n, b):
        return n * b / (0.1 + 0.002 * b + 0.01 * n)

    t = fitted("concave", [(2, 64), (8, 64), (4, 128)], truth, batch=256)
    assert t(16) == pytest.approx(truth(16, 256))


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(1, 999), st.floats(0.1, 1e6)), min_size=1)
)
def test_efficiency_lies_within_0_and_1_and_gains_never_rise(reports):
    found = tuple(Measurement(*each, at_s=at) for at, each in enumerate(reports))
    for model in MODELS:
        assert 0 <= efficiency(MODELS[model](found, 64), 16) <= 1
    more = gains(MODELS["concave"](found, 64), 16)
    assert more[0] == pytest.approx(1)
    assert (np.diff(more) <= 0).all()
    assert (more >= -1e-9).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 8))
def test_nonnegative_least_squares_meets_its_optimality_conditions(seed, k, m):
    rng = np.random.default_rng(seed)
    rows, wanted = rng.standard_normal((m, k)), rng.standard_normal(m)
    found = nonnegative(rows, wanted)
    slope = rows.T @ (wanted - rows @ found)  # Karush–Kuhn–Tucker
    assert (found >= 0).all()
    assert slope == pytest.approx(np.minimum(slope, 0), abs=1e-4)
    assert found @ slope == pytest.approx(0, abs=1e-4)
