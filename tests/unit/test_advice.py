"""Which rule for which numbers."""

import pytest

from garfield.core.errors import ConfigError
from garfield.gars import GARS
from garfield.gars.advice import advise, recommend


def _by_name(n, f, d, seconds=None):
    return {advice.rule: advice for advice in advise(n, f, d, seconds)}


@pytest.mark.parametrize(
    ("n", "f", "d", "rule"),
    [
        (15, 3, 25_000_000, "bulyan"),  # high dimension, and n = 4f + 3
        (14, 3, 25_000_000, "mda"),  # one short of it: smallest Δ
        (20, 3, 999_999, "mda"),  # low dimension: smallest Δ
        (5, 2, 1_000, "median"),  # √3 < 2√2 · 2/3
        (100, 45, 1_000, "median"),  # MDA's search is exponential in f
        (4, 0, 1_000, "average"),  # nobody to fear
        (6, 3, 1_000, None),  # n < 2f + 1: hopeless
    ],
)
def test_the_thesis_advice_for_chosen_numbers(n, f, d, rule):
    assert recommend(n, f, d)[0] == rule
    assert [advice.rule for advice in advise(n, f, d) if advice.recommended] == [rule] * bool(rule)


def test_the_reason_names_the_numbers_it_rests_on():
    assert "4f + 3 = 15" in recommend(15, 3, 25_000_000)[1]
    assert "needs n >= 4f + 3 = 15" in recommend(14, 3, 25_000_000)[1]
    assert "Δ = 1.73 against mda 1.89" in recommend(5, 2, 1_000)[1]
    assert "exponential" in recommend(100, 45, 1_000)[1]
    assert "least demanding needs 7" in recommend(6, 3, 1_000)[1]


def test_every_registered_rule_gets_a_line_the_recommended_one_first():
    advices = advise(20, 3, 25_000_000)
    assert {advice.rule for advice in advices} == set(GARS)
    assert advices[0].recommended
    admissible = [advice.admissible for advice in advices]
    assert admissible == sorted(admissible, reverse=True)


def test_an_inadmissible_rule_says_what_it_would_need():
    bulyan = _by_name(14, 3, 1_000)["bulyan"]
    assert not bulyan.admissible
    assert bulyan.needs == 15
    assert bulyan.max_f == 2
    assert "n >= 15" in bulyan.why
    assert bulyan.delta is None


def test_averaging_is_not_admissible_once_somebody_may_lie():
    assert not _by_name(20, 1, 1_000)["average"].admissible
    assert _by_name(20, 0, 1_000)["average"].admissible


def test_measured_seconds_stand_beside_their_rules():
    advices = _by_name(20, 3, 1_000, {"median": 0.5})
    assert advices["median"].seconds == 0.5
    assert advices["krum"].seconds is None


@pytest.mark.parametrize(("n", "f", "d"), [(0, 0, 1), (3, 3, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_numbers_are_refused(n, f, d):
    with pytest.raises(ConfigError, match="0 <= f < n"):
        advise(n, f, d)
