"""Optimal attacks: the search for the strength that harms a known rule the most."""

import numpy as np
import pytest

import garfield
from garfield.attacks import parse
from garfield.attacks.strength import peak
from tests.marks import heavy_but

OPTIMAL = ("optimal-little-is-enough", "optimal-fall-of-empires")
every_optimal = pytest.mark.parametrize("name", OPTIMAL)


def rows_of(h, d=50, seed=0):
    rng = np.random.default_rng(seed)
    return (0.5 * rng.normal(size=d) + rng.normal(size=(h, d))).astype(np.float32)


def against(rule, f):
    return lambda rows: garfield.GARS[rule](rows, f=f)


def lie_of(text, honest, f, defence=None):
    return parse(text).rows(honest, f=f, rng=np.random.default_rng(0), defence=defence)[0]


def damage(defence, honest, lie, f):
    answer = defence([*honest, *[np.asarray(lie, np.float32)] * f])
    return np.linalg.norm(answer - honest.mean(axis=0, dtype=np.float64))


def lines(honest):
    """Where the lies of each optimal attack lie, by strength."""
    mean, std = honest.mean(axis=0, dtype=np.float64), honest.std(axis=0, dtype=np.float64)
    return dict(zip(OPTIMAL, (lambda s: mean + s * std, lambda s: -s * mean), strict=True))


# -- against rules --------------------------------------------------------------------------------


@every_optimal
@pytest.mark.parametrize("rule", ["median", "multi-krum", "krum", "trimmed-mean", "mda", "bulyan"])
@pytest.mark.slow
@pytest.mark.parametrize(("n", "f"), heavy_but([(11, 2), (23, 5)], (11, 2)))
def test_it_does_as_much_damage_as_any_strength_on_a_fine_grid(name, rule, n, f):
    honest, defence = rows_of(n - f, seed=n), against(rule, f)
    line = lines(honest)[name]
    best = max(damage(defence, honest, line(s), f) for s in np.geomspace(0.05, 20, 200))
    assert damage(defence, honest, lie_of(name, honest, f, defence), f) >= 0.999 * best


@pytest.mark.parametrize("name", ["little-is-enough", "fall-of-empires"])
def test_it_beats_the_same_lie_at_its_fixed_strength(name):
    honest, defence = rows_of(18), against("multi-krum", 5)
    tuned = lie_of(f"optimal-{name}", honest, 5, defence)
    fixed = lie_of(name, honest, 5)
    assert damage(defence, honest, tuned, 5) > 1.2 * damage(defence, honest, fixed, 5)


def test_little_is_enough_can_be_told_on_the_other_side():
    honest = rows_of(9)
    mean, std = honest.mean(axis=0, dtype=np.float64), honest.std(axis=0, dtype=np.float64)
    lie = lie_of("optimal-little-is-enough(sign=-1)", honest, 2, against("krum", 2))
    strengths = (mean - lie) / std
    assert strengths.min() == pytest.approx(strengths.max(), rel=1e-4)
    assert strengths.min() > 0


def test_against_an_average_the_loudest_lie_is_the_best():
    honest = rows_of(4)
    lie = lie_of("optimal-fall-of-empires(most=50)", honest, 2, lambda rows: np.mean(rows, axis=0))
    np.testing.assert_allclose(lie, -50 * honest.mean(axis=0), rtol=1e-5)


def test_a_rule_that_answers_nan_counts_as_beaten():
    honest = rows_of(4, d=3)

    def fragile(rows):
        return np.full(3, np.nan) if np.abs(rows[-1]).max() > 5 else np.mean(rows, axis=0)

    assert np.abs(lie_of("optimal-fall-of-empires", honest, 1, fragile)).max() > 5


@every_optimal
def test_without_a_defence_it_says_what_to_pass(name):
    with pytest.raises(garfield.ConfigError, match=r"holds no defence\. Pass defence="):
        lie_of(name, rows_of(4), 1)


@every_optimal
@pytest.mark.parametrize("trials", [8, 9, 60, 301])
def test_the_defence_is_asked_about_all_rows_and_no_more_often_than_agreed(name, trials):
    asked = []

    def defence(rows):
        asked.append(len(rows))
        return np.median(rows, axis=0)

    lie_of(f"{name}(trials={trials})", rows_of(4), 2, defence)
    assert trials // 2 < len(asked) <= trials
    assert set(asked) == {6}  # four honest rows and two lies


# -- the search itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("cliff", [0.06, 0.7, 1.0, 3.33, 19.0])
def test_it_climbs_to_the_very_edge_of_a_cliff(cliff):
    found = peak(lambda s: s if s <= cliff else 0.0, 0.05, 20, 60)
    assert 0.995 * cliff <= found <= cliff


def test_of_two_cliffs_it_takes_the_higher():
    def height(s):
        return s if s <= 0.5 else (0.3 * s if s <= 2 else 0.1)

    assert peak(height, 0.05, 20, 60) == pytest.approx(2, rel=5e-3)
    assert peak(lambda s: height(s) + (s <= 0.5), 0.05, 20, 60) == pytest.approx(0.5, rel=5e-3)


def test_a_smooth_hill_is_found_to_a_fraction_of_a_percent():
    assert peak(lambda s: -((np.log(s) - 1) ** 2), 0.05, 20, 60) == pytest.approx(np.e, rel=5e-3)


def test_where_all_strengths_are_equal_the_weakest_will_do():
    assert peak(lambda s: 1.0, 0.05, 20, 60) == pytest.approx(0.05)
