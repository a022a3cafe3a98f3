"""Equations 3.12 and 3.13 of the thesis."""

import math

import numpy as np
import pytest

import garfield
from garfield import GARS, variance_condition


def test_variance_ratios_are_those_of_equation_3_13():
    n, f = 20, 3
    assert GARS["median"].variance_ratio(n, f) == pytest.approx(math.sqrt(17))
    assert GARS["mda"].variance_ratio(n, f) == pytest.approx(2 * math.sqrt(2) * 3 / 17)
    krum = math.sqrt(2 * (17 + (3 * 15 + 9 * 16) / 12))
    assert GARS["krum"].variance_ratio(n, f) == pytest.approx(krum)
    assert GARS["bulyan"].variance_ratio(n, f) is None
    with pytest.raises(garfield.BoundError):
        GARS["krum"].variance_ratio(6, 2)


def rounds(signal, noise, count=5, h=17, d=4000, seed=0):
    """Gradients whose mean has length `signal` and whose deviations have length `noise`."""
    rng = np.random.default_rng(seed)
    mean = np.zeros(d)
    mean[0] = signal
    return [mean + noise / math.sqrt(d) * rng.standard_normal((h, d)) for _ in range(count)]


def test_the_margin_is_signal_over_noise_and_delta():
    margins = variance_condition(rounds(signal=8.0, noise=1.0), f=3)
    assert margins["median"].worst == pytest.approx(8.0 / math.sqrt(17), rel=0.05)
    assert margins["median"].holds
    assert margins["mda"].worst == pytest.approx(8.0 / (2 * math.sqrt(2) * 3 / 17), rel=0.05)
    assert margins["krum"].worst == pytest.approx(
        8.0 / GARS["krum"].variance_ratio(20, 3), rel=0.05
    )


def test_as_noise_grows_the_median_fails_before_mda():
    margins = variance_condition(rounds(signal=2.0, noise=1.0), f=3)
    assert not margins["median"].holds
    assert margins["median"].share == 0.0
    assert margins["mda"].holds


def test_noise_alone_is_not_taken_for_a_gradient():
    """The mean of h noisy rows has length σ/√h even where the gradient is zero."""
    margins = variance_condition(rounds(signal=0.0, noise=1.0, d=100_000), f=3)
    assert margins["mda"].worst < 0.3


def test_without_faults_mda_asks_for_nothing():
    assert variance_condition(rounds(1.0, 1.0), f=0)["mda"].worst == math.inf


def test_a_single_gradient_has_no_variance():
    with pytest.raises(garfield.InputError, match="at least 2"):
        variance_condition([np.ones((1, 3))], f=0)
    with pytest.raises(garfield.InputError, match="no rounds"):
        variance_condition([], f=0)
