"""The lies of attackers that see all honest rows, each against a slow and obvious form."""

import itertools
from statistics import NormalDist

import numpy as np
import pytest

import garfield
from garfield.attacks import parse
from garfield.attacks.little_is_enough import z_max

BOTH_WIDTHS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SHAPES = pytest.mark.parametrize(("h", "d"), [(2, 1), (5, 3), (9, 100), (7, 40_000)])
DIRECTIONS = pytest.mark.parametrize("direction", ["std", "unit", "sign"])


def rows_of(h, d, dtype=np.float64, seed=0):
    """Rows of unequal length around a mean that is not zero."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=d) + rng.uniform(0.2, 2, (h, 1)) * rng.normal(size=(h, d))).astype(
        dtype
    )


def lie_of(text, honest, f=3, **more):
    return parse(text).rows(honest, f=f, rng=np.random.default_rng(0), **more)[0].astype(np.float64)


# -- little is enough -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "f", "z"),
    [
        (50, 12, 0.33604),  # s = 14, Φ⁻¹(24/38)
        (50, 24, 1.42608),  # s = 2, Φ⁻¹(24/26)
        (51, 24, 1.44610),  # s = 2, Φ⁻¹(25/27)
        (25, 5, 0.25335),  # s = 8, Φ⁻¹(12/20)
        (11, 5, 0.96742),  # s = 1, Φ⁻¹(5/6)
    ],
)
def test_z_is_the_quantile_of_the_paper(n, f, z):
    assert z_max(n, f) == pytest.approx(z, abs=1e-5)


def test_z_leaves_the_liars_the_majority_they_need():
    """The honest rows expected beyond the lie, and the f liars, are just over half of n."""
    for n in range(7, 60):
        for f in range(3, (n - 1) // 2 + 1):
            beyond = (n - f) * (1 - NormalDist().cdf(z_max(n, f)))
            assert beyond + f == pytest.approx(n // 2 + 1)


@pytest.mark.parametrize(("n", "f"), [(10, 1), (10, 2), (11, 1), (3, 1), (10, 6), (10, 8)])
def test_z_stays_positive_and_finite_where_the_formula_does_not(n, f):
    assert 0 < z_max(n, f) < 3


def test_little_is_enough_is_mean_plus_z_deviations():
    honest = rows_of(38, 100)
    mean, std = honest.mean(axis=0), honest.std(axis=0)
    np.testing.assert_allclose(lie_of("little-is-enough", honest, 12), mean + 0.336038 * std, 1e-5)
    np.testing.assert_allclose(
        lie_of("little-is-enough(z=1.5, sign=-1)", honest, 12), mean - 1.5 * std
    )


@BOTH_WIDTHS
def test_the_deviation_of_rows_far_from_zero_does_not_cancel(dtype):
    honest = (4096 + rows_of(6, 40_000)).astype(dtype)
    wide = honest.astype(np.longdouble)
    expected = wide.mean(axis=0) + 2 * wide.std(axis=0)
    few_steps = 3 * 4096 * np.finfo(dtype).eps  # E[x²] − E[x]² would be off by 4096 of them
    assert np.abs(lie_of("little-is-enough(z=2)", honest) - expected).max() <= few_steps


# -- fall of empires ------------------------------------------------------------------------------


def test_fall_of_empires_is_the_mean_backwards():
    honest = rows_of(8, 50)
    np.testing.assert_allclose(lie_of("fall-of-empires", honest), -0.1 * honest.mean(axis=0))
    np.testing.assert_allclose(
        lie_of("inner-product-manipulation(epsilon=2)", honest), -2 * honest.mean(axis=0)
    )


def test_a_short_step_back_deceives_krum_and_a_long_one_is_needed_for_the_average():
    rng = np.random.default_rng(0)
    honest = 0.3 + rng.normal(size=(9, 200))  # noise outweighs the gradient
    mean = honest.mean(axis=0)

    def outcome(rule, text):
        lies = parse(text).rows(honest, f=4, rng=rng)
        return garfield.GARS[rule]([*honest, *lies], f=4) @ mean

    assert outcome("krum", "fall-of-empires") < 0
    assert outcome("average", "fall-of-empires(epsilon=2.2)") > 0  # (n − f) / f is 9/4
    assert outcome("average", "fall-of-empires(epsilon=2.3)") < 0


# -- mimic ----------------------------------------------------------------------------------------


@BOTH_WIDTHS
@pytest.mark.parametrize("seed", range(5))
def test_the_victim_is_farthest_along_the_first_principal_component(dtype, seed):
    honest = rows_of(9, 60, dtype, seed)
    centred = honest.astype(np.float64) - honest.mean(axis=0, dtype=np.float64)
    component = np.linalg.svd(centred, full_matrices=False)[2][0]
    victim = np.argmax(np.abs(centred @ component))
    np.testing.assert_array_equal(lie_of("mimic", honest), honest[victim])


def test_the_victim_can_be_chosen():
    honest = rows_of(5, 10)
    np.testing.assert_array_equal(lie_of("mimic(victim=3)", honest), honest[3])
    with pytest.raises(
        garfield.ConfigError, match=r"victim must be within 0\.\.4 \(h - 1\), got 5"
    ):
        lie_of("mimic(victim=5)", honest)


# -- min-max and min-sum --------------------------------------------------------------------------


def max_distance(point, rows):
    return np.sqrt(((rows - point) ** 2).sum(axis=1).max())


def sum_of_squares(point, rows):
    return ((rows - point) ** 2).sum()


def bounds(rows):
    """The two right-hand sides, pair by pair."""
    pairs = itertools.combinations(rows, 2)
    widest = max(np.sqrt(((x - y) ** 2).sum()) for x, y in pairs)
    return {
        "min-max": (max_distance, widest),
        "min-sum": (sum_of_squares, max(sum_of_squares(row, rows) for row in rows)),
    }


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
@SHAPES
@BOTH_WIDTHS
@DIRECTIONS
def test_the_lie_goes_exactly_as_far_as_the_bound_allows(name, h, d, dtype, direction):
    honest = rows_of(h, d, dtype, seed=h)
    wide = honest.astype(np.float64)
    mean = wide.mean(axis=0)
    stray, bound = bounds(wide)[name]
    step = lie_of(f"{name}(direction='{direction}')", honest) - mean
    assert stray(mean + step, wide) <= bound * (1 + 1e-5)
    assert stray(mean + 1.001 * step, wide) > bound


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
def test_the_lie_is_what_the_papers_bisection_finds(name):
    honest = rows_of(9, 30, seed=4)
    mean, p = honest.mean(axis=0), -honest.std(axis=0)
    stray, bound = bounds(honest)[name]
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if stray(mean + middle * p, honest) <= bound else (low, middle)
    np.testing.assert_allclose(lie_of(name, honest), mean + low * p, rtol=1e-8)


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
def test_directions_are_those_of_the_paper(name):
    honest = rows_of(6, 20)
    mean, std = honest.mean(axis=0), honest.std(axis=0)
    for direction, p in (("std", -std), ("unit", -mean), ("sign", -np.sign(mean))):
        step = lie_of(f"{name}(direction='{direction}')", honest) - mean
        cosine = step @ p / np.linalg.norm(step) / np.linalg.norm(p)
        assert cosine == pytest.approx(1)
