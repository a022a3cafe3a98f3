"""One contract for every rule in the registry: a new rule is tested by registering it.

What can be checked without knowing what a rule computes is in `garfield.testing.rules`, which
users hold their own rules to; here it is run over ours, and they are compared with references.
"""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from garfield import GARS
from garfield.gars import parse
from garfield.kernels import read
from garfield.preaggregation import bucketing
from garfield.testing.promises import close, keep
from garfield.testing.rules import RULE_CHECKS, SEED
from tests import references

RULES = tuple(GARS)
CHAINS = ("nnm+multi-krum", "nnm+median", "arc+geometric-median", "clipping(tau=2.5)+mda")

every_rule = pytest.mark.parametrize("name", RULES)


def rule(name):
    """With its randomness fixed."""
    return parse(name).seeded(SEED)


def spread_out(n, d, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


@pytest.mark.parametrize("name", [*RULES, *CHAINS])
@pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
def test_every_rule_keeps_the_promise(check, name):
    keep(check, rule(name), name)


def test_bounds_are_those_of_the_thesis():
    assert [GARS[name].needs(3) for name in ("median", "mda", "krum", "multi-krum", "bulyan")] == [
        7, 7, 9, 9, 15,
    ]  # fmt: skip


# -- agreement ------------------------------------------------------------------------------------


@every_rule
@pytest.mark.parametrize(("n", "f"), [(3, 0), (7, 1), (8, 1), (11, 2), (15, 3), (16, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_agrees_with_the_obvious_implementation(name, n, f, dtype):
    rows = spread_out(n, 37, seed=n, dtype=dtype)
    rows[:f] += 4  # some stand apart, so that selections are clear-cut
    expected = references.RULES[name](rows.astype(np.float64), f)
    assert close(rule(name)(rows, f=f), expected, rows, 1e-5 if dtype == np.float32 else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*RULES} - {"mda"}))  # whose best set is then not unique
@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_it_agrees_where_nobody_stands_out(name, apart):
    """Every decision is close then, so that each slip in one of them shows in some of the cases."""
    for n, f in [(7, 1), (8, 1), (11, 2), (16, 3)]:
        for seed in range(6):
            rows = spread_out(n, 5, seed=100 * n + seed, dtype=np.float64)
            rows[:f] += apart
            expected = references.RULES[name](rows, f)
            assert close(rule(name)(rows, f=f), expected, rows, 1e-6), f"n={n}, f={f}, {seed=}"


@pytest.mark.parametrize("m", range(1, 8))
def test_bulyan_with_m_agrees_with_the_obvious_implementation(m):
    """n = 15 and f = 3 allow m up to 7; each of them gives another result than m = 1 somewhere."""
    differs = 0
    for seed in range(6):
        rows = spread_out(15, 5, seed=seed, dtype=np.float64)
        rows[:3] += 0.5
        found = parse(f"bulyan(m={m})")(rows, f=3)
        assert close(found, references.bulyan(rows, 3, m), rows, 1e-9), f"{seed=}"
        differs += not close(found, references.bulyan(rows, 3), rows, 1e-9)
    assert differs == 0 if m == 1 else differs > 0


@pytest.mark.parametrize("m", range(1, 8))
def test_bulyan_with_m_does_not_care_how_rows_are_numbered(m):
    for seed in range(6):
        rows = spread_out(15, 5, seed=seed)
        order = np.random.default_rng(seed).permutation(15)
        found = parse(f"bulyan(m={m})")(rows, f=3)
        assert close(parse(f"bulyan(m={m})")(rows[order], f=3), found, rows), f"{seed=}"


@pytest.mark.parametrize("m", range(1, 8))
def test_bulyan_with_m_keeps_every_coordinate_among_honest_values(m):
    """Liars who agree with the honest mean in all coordinates but one slip into any selection."""
    honest = spread_out(12, 200, seed=3, dtype=np.float64)
    rows = np.concatenate([np.tile(honest.mean(axis=0), (3, 1)), honest])
    rows[:3, 17] += 8
    seen = parse(f"bulyan(m={m})")(rows, f=3, explain=True)
    assert set(seen.trusted) & {0, 1, 2}
    assert (seen.vector <= honest.max(axis=0)).all()
    assert (seen.vector >= honest.min(axis=0)).all()


@pytest.mark.parametrize(("n", "s"), [(6, 2), (7, 2), (9, 3), (10, 3), (11, 4), (5, 1), (4, 7)])
def test_bucketing_averages_random_groups_of_s_that_hold_every_row_once(n, s):
    groups = set()
    for seed in range(80):
        buckets = bucketing.bind(s=s, seed=seed)(read(np.eye(n))[0], f=0).matrix()
        members = [np.flatnonzero(bucket) for bucket in buckets]
        sizes = sorted(map(len, members), reverse=True)
        assert sizes == [s] * (n // s) + ([n % s] if n % s else [])
        assert sorted(np.concatenate(members)) == list(range(n))
        for bucket, own in zip(buckets, members, strict=True):
            np.testing.assert_allclose(bucket[own], 1 / len(own), rtol=1e-6)
        groups |= {tuple(own) for own in members if len(own) == s}
    if 1 < s < n:
        met = {pair for group in groups for pair in combinations(group, 2)}
        assert met == set(combinations(range(n), 2))  # everybody meets everybody, some time


@pytest.mark.parametrize(
    "name", ["median", "multi-krum", "mda", "geometric-median", "centered-clipping"]
)
def test_a_rule_behind_bucketing_gets_the_buckets(name):
    rows = spread_out(18, 40, seed=8, dtype=np.float64)
    rows[:2] += 3
    for seed in range(5):
        buckets = bucketing.bind(seed=seed)(read(rows)[0], f=2).matrix()
        expected = references.RULES[name](buckets, 2)
        assert close(parse(f"bucketing(seed={seed})+{name}")(rows, f=2), expected, rows, 1e-6)


@pytest.mark.parametrize(("n", "f"), [(3, 1), (7, 3), (9, 2), (16, 3)])
def test_monna_centres_the_tightest_ball_also_where_all_rows_are_much_alike(n, f):
    other_centre = 0
    for seed in range(20):
        rows = spread_out(n, 4, seed=seed, dtype=np.float64)
        found = GARS["monna"](rows, f=f)
        assert close(found, references.monna(rows, f), rows, 1e-9), f"{seed=}"
        other_centre += not close(found, references.monna_around(rows, f, 0), rows, 1e-9)
    assert other_centre > 5  # the centre matters


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
@settings(max_examples=150)
def test_coordinate_wise_rules_are_exact_on_ties(rows, data):
    f = data.draw(st.integers(0, (len(rows) - 1) // 2))
    for name in ("median", "trimmed-mean", "meamed"):
        expected = references.RULES[name](rows.astype(np.float64), f)
        np.testing.assert_allclose(GARS[name](rows, f=f), expected, atol=1e-6)


@given(st.integers(3, 9), st.integers(1, 40), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=60)
def test_mda_keeps_a_set_of_the_smallest_diameter(n, d, seed, data):
    f = data.draw(st.integers(0, (n - 1) // 2))
    rows = np.random.default_rng(seed).integers(-3, 4, (n, d)).astype(np.float64)
    kept = GARS["mda"](rows, f=f, explain=True).trusted
    assert len(kept) == n - f
    assert references.diameter(rows[list(kept)]) == references.smallest_diameter(rows, f)


# -- what only some rules do ----------------------------------------------------------------------


def test_clipping_at_a_fixed_length_does_not_scale():
    rows = spread_out(15, 50, seed=5) * 100
    assert not close(rule("clipping+mda")(rows * 2, f=3), rule("clipping+mda")(rows, f=3) * 2, rows)


def test_averaging_is_carried_away_by_a_single_row():
    rows = spread_out(5, 3)
    rows[0] = np.nan
    assert np.isnan(GARS["average"](rows)).all()


@pytest.mark.parametrize("name", [name for name in RULES if GARS[name].masks])
def test_a_presence_mask_leaves_each_column_what_arrived(name):
    rows = spread_out(9, 300, seed=14)
    order = np.random.default_rng(15).random((9, 300)).argsort(axis=0)
    present = order < np.random.default_rng(16).integers(5, 10, 300)  # 2f + 1 at least
    columns = zip(rows.astype(np.float64).T, present.T, strict=True)
    expected = [references.present_column(name, x[here], 2) for x, here in columns]
    rows[~present] = np.nan  # whatever lies where nothing arrived is not read
    np.testing.assert_allclose(GARS[name](rows, f=2, mask=present), expected, atol=1e-6)
