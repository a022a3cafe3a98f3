"""One contract for every rule in the registry: a new rule is tested by registering it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import garfield
from garfield import ATTACKS, GARS
from garfield.gars import parse
from tests import references

RULES = tuple(GARS)
CHAINS = ("nnm+multi-krum", "nnm+median", "arc+geometric-median", "clipping(tau=2.5)+mda")
ROBUST = tuple(name for name in RULES if GARS[name].robust)
POISON = (np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, -3e38)

every_rule = pytest.mark.parametrize("name", RULES)
every_robust_rule = pytest.mark.parametrize("name", [*ROBUST, *CHAINS])
every_rule_and_chain = pytest.mark.parametrize("name", [*RULES, *CHAINS])


def rule(name):
    """With its randomness fixed."""
    return parse(name).seeded(7)


def spread_out(n, d, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def close(result, expected, rows, tolerance=1e-5):
    """Within a fraction of how large the rows are."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    return np.abs(result - expected).max() <= tolerance * max(np.abs(rows).max(), 1e-30)


# -- bounds ---------------------------------------------------------------------------------------


@every_rule_and_chain
@pytest.mark.parametrize("f", [0, 1, 2, 5])
def test_it_takes_as_many_rows_as_it_needs_and_refuses_one_less(name, f):
    n = rule(name).needs(f)
    rows = spread_out(n, 3)
    assert rule(name)(rows, f=f).shape == (3,)
    if n > 1:
        with pytest.raises(garfield.BoundError, match=rf"n >= {n} .* f={f} .* n={n - 1}"):
            rule(name)(rows[:-1], f=f)


@every_robust_rule
@pytest.mark.parametrize("n", [3, 7, 20, 31])
def test_the_largest_f_is_the_last_one_that_n_rows_are_enough_for(name, n):
    f = rule(name).max_f(n)
    assert rule(name).needs(f) <= n < rule(name).needs(f + 1)


def test_bounds_are_those_of_the_thesis():
    assert [GARS[name].needs(3) for name in ("median", "mda", "krum", "multi-krum", "bulyan")] == [
        7, 7, 9, 9, 15,
    ]  # fmt: skip


@every_rule
@pytest.mark.parametrize("f", [-1, 1.5, True, "2"])
def test_f_must_be_a_whole_number(name, f):
    with pytest.raises(garfield.ConfigError, match=f"{name}: f must be a whole number"):
        rule(name)(spread_out(30, 2), f=f)


# -- agreement ------------------------------------------------------------------------------------


@every_rule
@pytest.mark.parametrize(("n", "f"), [(3, 0), (7, 1), (8, 1), (11, 2), (15, 3), (16, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_agrees_with_the_obvious_implementation(name, n, f, dtype):
    rows = spread_out(n, 37, seed=n, dtype=dtype)
    rows[:f] += 4  # some stand apart, so that selections are clear-cut
    expected = references.RULES[name](rows.astype(np.float64), f)
    assert close(rule(name)(rows, f=f), expected, rows, 1e-5 if dtype == np.float32 else 1e-6)


@pytest.mark.parametrize("stage", ["nnm", "clipping", "arc"])
@pytest.mark.parametrize("name", ["median", "multi-krum", "geometric-median", "aksel", "bulyan"])
def test_a_chain_is_the_rule_on_what_the_stage_makes(stage, name):
    rows = spread_out(15, 40, seed=1)
    rows[:3] *= 30
    between = references.STAGES[stage](rows.astype(np.float64), 3)
    expected = references.RULES[name](between, 3)
    assert close(parse(f"{stage}+{name}")(rows, f=3), expected, rows, 1e-6)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(3, 9), st.integers(1, 5)),
               elements=st.integers(-4, 4).map(float)),
    st.data(),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_coordinate_wise_rules_are_exact_on_ties(rows, data):
    f = data.draw(st.integers(0, (len(rows) - 1) // 2))
    for name in ("median", "trimmed-mean", "meamed"):
        expected = references.RULES[name](rows.astype(np.float64), f)
        np.testing.assert_allclose(GARS[name](rows, f=f), expected, atol=1e-6)


@given(st.integers(3, 9), st.integers(1, 40), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=60, deadline=None)
def test_mda_keeps_a_set_of_the_smallest_diameter(n, d, seed, data):
    f = data.draw(st.integers(0, (n - 1) // 2))
    rows = np.random.default_rng(seed).integers(-3, 4, (n, d)).astype(np.float64)
    kept = GARS["mda"](rows, f=f, explain=True).trusted
    assert len(kept) == n - f
    assert references.diameter(rows[list(kept)]) == references.smallest_diameter(rows, f)


# -- symmetry -------------------------------------------------------------------------------------


@every_rule_and_chain
@pytest.mark.parametrize("n", [11, 15])
def test_the_order_of_rows_does_not_matter(name, n):
    rows = spread_out(n, 50, seed=2)
    shuffled = rows[np.random.default_rng(3).permutation(n)]
    assert close(rule(name)(shuffled, f=2), rule(name)(rows, f=2), rows)


@every_rule_and_chain
def test_it_moves_with_the_rows_if_it_says_so(name):
    rows = spread_out(15, 50, seed=4, dtype=np.float64)
    shift = np.linspace(-5, 5, 50)
    moved = rule(name)(rows + shift, f=3)
    assert close(moved, rule(name)(rows, f=3) + shift, rows, 1e-9) == rule(name).translates


@every_rule_and_chain
@pytest.mark.parametrize("factor", [-3.0, 1e-12, 1e12])
def test_it_scales_with_the_rows_if_it_says_so(name, factor):
    rows = spread_out(15, 50, seed=5, dtype=np.float64)
    scaled = rule(name)(rows * factor, f=3)
    same = close(scaled, rule(name)(rows, f=3) * factor, rows * factor, 1e-9)
    assert same or not rule(name).scales


def test_clipping_at_a_fixed_length_does_not_scale():
    rows = spread_out(15, 50, seed=5) * 100
    assert not close(rule("clipping+mda")(rows * 2, f=3), rule("clipping+mda")(rows, f=3) * 2, rows)


# -- poison ---------------------------------------------------------------------------------------


def honest_range(rows):
    """The length of the box that holds the honest rows: no robust rule leaves it by far."""
    return float(np.linalg.norm(rows.max(axis=0) - rows.min(axis=0)))


@every_robust_rule
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("where", ["a whole row", "one coordinate"])
def test_f_poisoned_rows_do_not_carry_it_away(name, poison, where):
    rows = spread_out(15, 60, seed=6)
    honest = rows[3:].copy()
    rows[:3, :] = poison if where == "a whole row" else rows[:3]
    rows[:3, 17] = poison
    result = np.asarray(rule(name)(rows, f=3), np.float64)
    assert np.isfinite(result).all()
    assert np.linalg.norm(result - honest.mean(axis=0)) <= honest_range(honest)


@every_robust_rule
def test_rows_of_different_poison_at_once_are_survived(name):
    rows = spread_out(23, 60, seed=7)
    honest = rows[5:].copy()
    rows[:5] = np.array([np.nan, np.inf, 3e38, -3e38, 1e30])[:, None]
    explained = rule(name)(rows, f=5, explain=True)
    assert np.linalg.norm(explained.vector - honest.mean(axis=0)) <= honest_range(honest)
    assert explained.set_aside == {0: "non-finite", 1: "non-finite"}


@every_robust_rule
def test_the_rest_is_aggregated_for_the_faults_that_are_left(name):
    rows = spread_out(15, 40, seed=8)
    rows[[2, 9]] = np.nan
    alone = rule(name)(np.delete(rows, [2, 9], axis=0), f=1)
    np.testing.assert_array_equal(rule(name)(rows, f=3), alone)


@every_robust_rule
def test_a_row_that_never_came_counts_as_a_fault(name):
    rows = list(spread_out(15, 40, seed=9))
    alone = rule(name)(rows[:4] + rows[5:], f=2)
    rows[4] = None
    explained = rule(name)(rows, f=3, explain=True)
    np.testing.assert_array_equal(explained.vector, alone)
    assert explained.set_aside == {4: "missing"}


@every_robust_rule
def test_more_faulty_rows_than_f_are_named(name):
    rows = list(spread_out(15, 10))
    rows[1], rows[4] = None, np.full(10, np.inf, np.float32)
    with pytest.raises(garfield.InputError, match=r"f=1 .* n=15 .* 1 \(missing\), 4 \(non-finite"):
        rule(name)(rows, f=1)


def test_averaging_is_carried_away_by_a_single_row():
    rows = spread_out(5, 3)
    rows[0] = np.nan
    assert np.isnan(GARS["average"](rows)).all()


@every_robust_rule
def test_float64_rows_whose_squares_overflow_are_survived(name):
    rows = spread_out(15, 20, seed=10, dtype=np.float64)
    honest = rows[3:].copy()
    rows[:3] = [[1e300], [-1e300], [1e308]]
    result = rule(name)(rows, f=3)
    assert np.linalg.norm(result - honest.mean(axis=0)) <= honest_range(honest)


@every_rule
def test_tiny_and_huge_rows_are_exact_to_their_own_scale(name):
    rows = spread_out(15, 30, seed=11, dtype=np.float32)
    for scale in (1e-15, 1e15, 1e30):
        scaled = rule(name)(rows * np.float32(scale), f=3).astype(np.float64) / scale
        assert close(scaled, rule(name)(rows, f=3), rows, 1e-4)


# -- colluding attackers --------------------------------------------------------------------------


@every_robust_rule
@pytest.mark.parametrize("attack", tuple(ATTACKS))
def test_f_colluding_attackers_cannot_move_it_beyond_its_bound(name, attack):
    n, f = 19, 4
    rng = np.random.default_rng(12)
    honest = (5 + rng.standard_normal((n - f, 200))).astype(np.float32)
    defence = rule(name)
    lies = ATTACKS[attack].rows(
        honest, f=f, n=n, rng=rng, defence=lambda rows: np.asarray(defence(rows, f=f))
    )
    result = np.asarray(defence([*honest, *lies], f=f), np.float64)
    radius = np.linalg.norm(honest - honest.mean(axis=0), axis=1).max()
    limit = 3 * radius
    if name.startswith("clipping"):
        limit += np.linalg.norm(honest.mean(axis=0))  # it shortens honest rows too
    assert np.linalg.norm(result - honest.mean(axis=0)) <= limit


# -- explaining -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in (*RULES, *CHAINS) if parse(n).selects])
def test_a_selecting_rule_says_whom_it_trusted(name):
    rows = spread_out(15, 40, seed=13)
    rows[5] = np.inf
    explained = rule(name)(rows, f=3, explain=True)
    np.testing.assert_array_equal(explained.vector, rule(name)(rows, f=3))
    assert explained.trusted
    assert sorted((*explained.trusted, *explained.left_out)) == list(range(15))
    assert 5 in explained.left_out
    if explained.weights is not None and name not in ("centered-clipping",):
        live = np.delete(np.arange(15), 5)
        mixed = explained.weights[live] @ rows[live].astype(np.float64)
        assert close(explained.vector, mixed, rows[live])
        assert set(np.flatnonzero(explained.weights)) == set(explained.trusted)


@pytest.mark.parametrize("name", [n for n in RULES if not GARS[n].selects])
def test_a_coordinate_wise_rule_does_not_claim_to_trust_rows(name):
    assert GARS[name](spread_out(5, 3), f=1, explain=True).trusted is None


# -- presence -------------------------------------------------------------------------------------


@every_rule
def test_a_presence_mask_is_honoured_or_refused(name):
    rows = spread_out(9, 300, seed=14)
    present = np.random.default_rng(15).random((9, 300)) > 0.4
    present[:, 7] = False
    if not GARS[name].masks:
        with pytest.raises(garfield.ConfigError, match=r"no presence mask.*median"):
            GARS[name](rows, f=1, mask=present)
        return
    columns = zip(rows.astype(np.float64).T, present.T, strict=True)
    expected = [references.present_column(name, x[here], 2) for x, here in columns]
    rows[~present] = np.nan  # whatever lies where nothing arrived is not read
    np.testing.assert_allclose(GARS[name](rows, f=2, mask=present), expected, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in RULES if GARS[n].masks])
def test_with_everything_present_a_mask_changes_nothing(name):
    rows = spread_out(9, 100, seed=16)
    rows[3, 5] = np.nan
    everything = np.ones(rows.shape, bool)
    np.testing.assert_allclose(GARS[name](rows, f=2, mask=everything), GARS[name](rows, f=2))


# -- hygiene --------------------------------------------------------------------------------------


@every_rule_and_chain
@pytest.mark.parametrize("poisoned", [False, True])
def test_inputs_are_never_changed(name, poisoned):
    rows = spread_out(15, 70_000, seed=17)
    if poisoned:
        rows[4] = 3e38
        rows[8, 3] = np.nan
    before = rows.copy()
    rule(name)(rows, f=3)
    np.testing.assert_array_equal(rows, before)


@every_rule
def test_rows_may_be_read_only(name):
    rows = spread_out(15, 10)
    rows.setflags(write=False)
    assert rule(name)(rows, f=3).flags.writeable


@every_rule
def test_an_unknown_parameter_is_refused(name):
    with pytest.raises(garfield.UnknownName, match=f"zeal is not a parameter of {name}"):
        GARS[name](spread_out(30, 3), f=1, zeal=3)
