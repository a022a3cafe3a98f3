"""The noise scale of gradients, estimated where it is known."""

import numpy as np
import pytest

from garfield.elastic.job.gradient_noise import NoiseScale

WORKERS, BATCH, DIMENSIONS = 4, 8, 30


def measured(true, deviation, steps=3000):
    """The mean of what is estimated in so many steps, and the last estimate."""
    rng, noise, found = np.random.default_rng(0), NoiseScale(), []
    for _ in range(steps):
        samples = true + deviation * rng.standard_normal((WORKERS, BATCH, DIMENSIONS))
        small = np.square(samples.mean(1)).sum(1).mean()
        large = np.square(samples.mean((0, 1))).sum()
        noise.add(small, BATCH, large, WORKERS * BATCH)
        state = noise.state_dict()
        found.append((state["signal"] / state["weight"], state["noise"] / state["weight"]))
    return np.mean(found, 0), noise.samples


def test_gradient_and_variance_are_estimated_without_bias():
    true = np.full(DIMENSIONS, 0.2)
    (signal, noise), scale = measured(true, deviation=0.5)
    assert signal == pytest.approx(true @ true, rel=0.05)
    assert noise == pytest.approx(DIMENSIONS * 0.5**2, rel=0.02)
    assert scale == pytest.approx(DIMENSIONS * 0.5**2 / (true @ true), rel=0.3)


def test_the_extremes_are_numbers_that_adascale_can_use():
    assert NoiseScale().samples is None
    assert measured(np.zeros(DIMENSIONS), 1.0, steps=50)[1] >= 1e2
    assert measured(np.ones(DIMENSIONS), 0.0, steps=50)[1] == pytest.approx(0, abs=1e-6)
    hidden = NoiseScale()
    hidden.add(2.0, BATCH, 0.4, WORKERS * BATCH)  # the averages would give |G|² < 0
    assert hidden.samples == 1e9


def test_a_state_goes_on_where_it_was():
    one, other = NoiseScale(), NoiseScale()
    one.add(2.0, 8, 1.0, 32)
    other.load_state_dict(one.state_dict())
    assert other.samples == one.samples
