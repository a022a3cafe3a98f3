"""One contract for every rule in the registry: a new rule is tested by registering it.

What can be checked without knowing what a rule computes is in `garfield.testing.rules`, which
users hold their own rules to; here it is run over ours, and they are compared with references.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from garfield import GARS
from garfield.gars import parse
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
    present = np.random.default_rng(15).random((9, 300)) > 0.4
    present[:, 7] = False
    columns = zip(rows.astype(np.float64).T, present.T, strict=True)
    expected = [references.present_column(name, x[here], 2) for x, here in columns]
    rows[~present] = np.nan  # whatever lies where nothing arrived is not read
    np.testing.assert_allclose(GARS[name](rows, f=2, mask=present), expected, atol=1e-6)
