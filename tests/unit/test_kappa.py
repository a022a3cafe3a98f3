"""(f, κ)-robustness: what the search finds, what is proven, and the command that shows both."""

import json
import math
from itertools import combinations, islice

import numpy as np
import pytest

import garfield
from garfield import GARS
from garfield.attacks import ATTACKS, attack
from garfield.gars import gar, parse
from garfield.gars.robustness import least_kappa, proven_kappa, subsets, worst_kappa
from garfield.gars.robustness.mutations import changed
from garfield.gars.robustness.starts import FAMILIES, _spelt, attacked, varied
from tests.command import invoke
from tests.marks import heavy_but

BUDGET = 300
PROVEN = [
    "median", "trimmed-mean", "geometric-median", "krum", "multi-krum", "multi-krum(m=1)", "mda",
    "meamed", "nnm+median", "nnm+krum", "arc+median", "nnm+trimmed-mean",
]  # fmt: skip


def plain_ratio(rows, answer, honest):
    """The definition, word by word."""
    chosen = rows[list(honest)]
    mean = chosen.mean(axis=0)
    return ((answer - mean) ** 2).sum() / ((chosen - mean) ** 2).sum(axis=1).mean()


@pytest.mark.parametrize(("n", "f", "exact"), [(7, 2, 3 / 2), (17, 3, 8 / 6), (5, 2, 2 / 1)])
def test_the_median_is_as_bad_as_cantelli_allows(n, f, exact):
    """With a = (n − 1)/2 honest values on one side, no median is farther off than a/(h − a)."""
    found = worst_kappa("median", n=n, f=f, budget=BUDGET)
    assert found.found == pytest.approx(exact, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVEN)
@pytest.mark.parametrize("f", heavy_but([1, 2], 2))
@pytest.mark.parametrize("more", heavy_but([0, 4], 0))
def test_no_search_exceeds_what_is_proven_nor_stays_below_the_least(name, f, more):
    n = parse(name).needs(f) + more
    found = worst_kappa(name, n=n, f=f, budget=BUDGET)
    assert found.theory is not None
    rounding = 1e-9  # MDA's bound is met exactly at n = 3
    assert least_kappa(n, f) * (1 - rounding) <= found.found
    assert found.found <= found.theory.kappa * (1 + rounding)


def test_the_rows_show_what_was_found():
    found = worst_kappa("krum", n=9, f=2, budget=BUDGET)
    answer = GARS["krum"](found.rows, 2)
    assert len(found.honest) == 7
    assert plain_ratio(found.rows, answer, found.honest) == pytest.approx(found.found)


@pytest.mark.slow
def test_rows_moved_freely_are_worse_than_any_attack():
    found = worst_kappa("multi-krum", n=9, f=2, budget=1000)
    assert found.found > 1.1 * found.by_attack > 0
    assert "moved freely" in found.by


def test_one_liar_moves_an_average_anywhere():
    found = worst_kappa("average", n=9, f=1, budget=BUDGET)
    assert found.found == found.by_attack == found.theory.kappa == math.inf
    assert worst_kappa("average", n=9, f=0, budget=50).found == 0.0


def test_a_rule_of_the_users_that_trusts_one_row_is_found_out():
    @gar("the-last-one", needs=lambda f: 2 * f + 1)
    def the_last_one(rows, *, f):
        return rows.matrix()[-1]

    try:
        found = worst_kappa("the-last-one", n=7, f=1, budget=BUDGET)
    finally:
        GARS.remove("the-last-one")
    assert found.found > 1000
    assert found.theory is None


def test_an_attack_of_the_users_is_tried():
    seen = []

    @attack("my-lie", knows="all")
    def my_lie(view, *, factor=2.0):
        seen.append(factor)
        return factor * view.honest[0]

    try:
        worst_kappa("median", n=7, f=2, budget=BUDGET)
    finally:
        ATTACKS.remove("my-lie")
    assert len(set(seen)) > 1  # with other factors than its own, too


@pytest.mark.slow
def test_the_same_seed_finds_the_same():
    one, same, other = (worst_kappa("krum", n=9, f=2, budget=BUDGET, seed=s) for s in (1, 1, 2))
    assert one.found == same.found
    np.testing.assert_array_equal(one.rows, same.rows)
    assert one.rows.shape != other.rows.shape or not np.array_equal(one.rows, other.rows)


def test_time_ends_a_search():
    now = iter(range(10_000))
    found = worst_kappa("median", n=9, f=2, seconds=20, clock=lambda: next(now))
    assert 10 < found.calls <= 20


def test_progress_is_told():
    told = []
    worst_kappa("median", n=7, f=1, budget=250, step=told.append)
    assert told == [100, 200]


def test_every_set_is_looked_at():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows, answer = rng.standard_normal((7, 3)), rng.standard_normal(3)
        ratio, honest = subsets.worst_set(rows, answer, 2)
        every = [plain_ratio(rows, answer, chosen) for chosen in combinations(range(7), 5)]
        assert ratio == pytest.approx(max(every))
        assert plain_ratio(rows, answer, honest) == pytest.approx(ratio)


def test_where_sets_are_many_improving_finds_nearly_the_worst(monkeypatch):
    rng = np.random.default_rng(0)
    cases = [(rng.standard_t(2, (12, 2)), rng.standard_normal(2)) for _ in range(30)]
    exact = [subsets.worst_set(rows, answer, 4)[0] for rows, answer in cases]
    monkeypatch.setattr(subsets, "_MOST_SETS", 0)
    found = [subsets.worst_set(rows, answer, 4)[0] for rows, answer in cases]
    assert all(f <= e * (1 + 1e-9) for f, e in zip(found, exact, strict=True))
    assert np.median(np.array(found) / np.array(exact)) > 0.99


def test_rounding_is_no_deviation():
    rows = np.full((5, 2), 1e3)
    assert subsets.worst_set(rows, rows[0] * (1 + 1e-15), 1)[0] == 0.0
    assert subsets.worst_set(rows, rows[0] + 1.0, 1)[0] == math.inf


def test_rows_that_are_not_finite_are_nobodys_honest_rows():
    rows = np.array([[0.0], [1.0], [2.0], [np.nan]])
    ratio, honest = subsets.worst_set(rows, np.array([3.0]), 1)
    assert honest.tolist() == [0, 1, 2]
    assert ratio == pytest.approx(4 / (2 / 3))


def test_what_is_proven_says_where():
    nnm = proven_kappa(parse("nnm+median"), 17, 3)
    assert nnm.kappa == pytest.approx(8 * 3 / 14 * (1 + 4 * (14 / 11) ** 2))
    assert "AISTATS 2023" in nnm.source
    assert proven_kappa(GARS["trimmed-mean"], 17, 0).kappa == 0.0
    assert proven_kappa(parse("bucketing+median"), 17, 3) is None
    assert proven_kappa(parse("geometric-median(nu=0.1)"), 17, 3) is None
    assert least_kappa(17, 3) == pytest.approx(3 / 11)


def test_dnc_follows_two_liars_anywhere():
    """The mean of all rows is where the second liar stands, so an honest row is dropped for it."""
    far = 1e4
    rows = np.zeros((9, 2))
    rows[:7, 1] = np.linspace(-1, 1, 7)
    rows[7:, 0] = far, 8 * far
    answer = GARS["dnc"](rows, 2, seed=0)
    assert answer[0] == pytest.approx(far / 7)
    assert proven_kappa(GARS["dnc"], 9, 2).kappa == math.inf
    assert proven_kappa(GARS["dnc"], 9, 1) is None
    assert proven_kappa(parse("nnm+dnc"), 9, 2) is None


def test_parameters_of_attacks_stay_within_their_range():
    rng = np.random.default_rng(0)
    drawn = [varied(ATTACKS["gaussian"], rng).params.get("scale", 1.0) for _ in range(30)]
    assert min(drawn) > 0
    assert len(set(drawn)) > 5


def test_too_few_rows_are_refused_with_numbers():
    with pytest.raises(garfield.BoundError, match=r"krum needs n >= 9 .* f=3 .* got n=8"):
        worst_kappa("krum", n=8, f=3)
    with pytest.raises(garfield.BoundError, match=r"n >= 2f \+ 1 = 7, got n=6.* f to 2 or less"):
        worst_kappa("average", n=6, f=3)


def test_the_command_shows_search_beside_theory():
    words = ["kappa", "--rule", "median", "--rule", "nnm+median", "--n", 7, "--f", 2]
    result = invoke([*words, "--budget", 200])
    assert result.exit_code == 0, result.output
    assert "1.5" in result.stdout
    assert "nnm+median" in result.stdout
    assert "AISTATS 2023" in result.stdout
    assert "below 0.667" in result.stdout


def test_the_command_prints_json_with_the_rows():
    words = ["kappa", "--rule", "median,average", "--n", 7, "--f", 2, "--budget", 200]
    told = json.loads(invoke([*words, "--json"]).stdout)
    median, average = told["rules"]
    assert median["kappa"] == pytest.approx(1.5)
    assert median["theory"]["kappa"] == pytest.approx(4 * (5 / 3) ** 2)
    assert (len(median["rows"]), len(median["honest"])) == (7, 5)
    assert (average["kappa"], average["unbounded"]) == (None, True)


def test_the_command_takes_all_rules_that_n_allows():
    result = invoke(["kappa", "--all", "--n", 5, "--f", 2, "--budget", 30, "--json"])
    names = {about["rule"] for about in json.loads(result.stdout)["rules"]}
    assert {"median", "mda", "nnm+median"} <= names
    assert not {"krum", "average"} & names
    assert "krum (n ≥ 7)" in result.stderr


def test_the_command_refuses_too_few_rows_before_it_searches():
    result = invoke(["kappa", "--rule", "median", "--rule", "krum", "--n", 6, "--f", 2])
    assert result.exit_code == 2
    assert "krum needs n >= 7 inputs to tolerate f=2 faults, got n=6" in result.stderr


def test_bounds_are_those_of_the_papers():
    """κ of each rule at n = 17, f = 3, as the table of theory.py states it."""
    h, median = 14, 4 * (1 + 3 / 11) ** 2
    krum = 2 * h / (h - 5) * (1 + 2 * (h - 2) / (h - 1))
    expected = {
        "median": median, "geometric-median": median, "krum": krum, "multi-krum": krum,
        "trimmed-mean": 6 * 3 / 11 * (1 + 3 / 11), "mda": 8 * 9 / 14,
        "meamed": 4 * 3 / 14 * (1 + median), "nnm+krum": 8 * 3 / 14 * (1 + krum),
        "arc+median": median + 2 * 3 / 11,
    }  # fmt: skip
    found = {name: proven_kappa(parse(name), 17, 3).kappa for name in expected}
    assert found == pytest.approx(expected)


def test_a_row_far_out_hides_no_deviation_of_the_others():
    """What is rounding is measured by the n − f nearest rows, wherever the farthest stands."""
    rows = np.array([[1.0], [1.1], [1e80], [1.2]])
    ratio, honest = subsets.worst_set(rows, np.array([0.0]), 1)
    assert honest.tolist() == [0, 1, 3]
    assert ratio == pytest.approx(plain_ratio(rows, np.array([0.0]), honest))


def test_sets_are_improved_from_each_rows_direction_too():
    rng = np.random.default_rng(12)
    n, h, d = (int(rng.integers(*bounds)) for bounds in ((6, 12), (3, 9), (1, 4)))
    away = rng.standard_normal((n, d)) * (10 ** rng.uniform(-1, 1, (n, 1)))
    sq = np.einsum("ij,ij->i", away, away)
    best = subsets._ratio(away[subsets._best_of_all(away, sq, h)], 0.0)
    assert subsets._ratio(away[subsets._improved(away, sq, h)], 0.0) > 0.95 * best


def test_an_answer_as_far_as_can_be_is_no_bound():
    @gar("the-end-of-the-world", needs=lambda f: 2 * f + 1)
    def the_end(rows, *, f):
        return np.full(rows.d, subsets.FAR)

    try:
        found = worst_kappa("the-end-of-the-world", n=5, f=1, budget=20)
    finally:
        GARS.remove("the-end-of-the-world")
    assert found.found == math.inf


def test_changes_are_as_large_as_the_honest_rows_differ():
    rows, honest = np.random.default_rng(0).standard_normal((7, 2)), np.arange(5)
    for seed in range(40):
        small, large = (
            changed(scale * rows, honest, np.random.default_rng(seed)) - scale * rows
            for scale in (1.0, 1e6)
        )
        np.testing.assert_allclose(large, 1e6 * small, rtol=1e-6, atol=1e-3)


def test_clusters_are_two_and_stand_apart():
    """Seen from one row, the others are near or far, and little lies between."""
    clear = []
    for seed in range(40):
        rows = FAMILIES["clusters"](8, 3, np.random.default_rng(seed))
        away = np.sort(np.linalg.norm(rows - rows[0], axis=1))
        clear.append(np.diff(away).max() > 0.5 * away.max())
    assert sum(clear) > 25


def test_one_row_is_enough_to_begin_with():
    """n − 1 dimensions would be none."""
    rng = np.random.default_rng(0)
    starts = islice(attacked(1, 0, rng, defence=lambda rows: rows[0]), 100)
    assert {start.rows.shape for start in starts} == {(1, 1), (1, 2), (1, 5)}


def test_an_attack_is_named_with_what_it_was_given_and_not_with_what_the_search_gave():
    spelt = _spelt(ATTACKS["optimal-fall-of-empires"].bind(trials=12))
    assert spelt == "optimal-fall-of-empires"
    assert _spelt(ATTACKS["little-is-enough"].bind(z=0.12345)) == "little-is-enough(z=0.123)"


def test_where_liars_are_half_no_rule_has_any_bound():
    assert least_kappa(4, 2) == least_kappa(3, 2) == math.inf
    assert least_kappa(5, 2) == 2.0


def test_a_budget_of_one_call_is_one():
    assert worst_kappa("median", n=5, f=1, budget=1).calls == 1
