"""For how many faults the rows that are left are aggregated, and what is refused for it."""

import numpy as np
import pytest

from garfield import BoundError, ConfigError, InputError
from garfield.gars import GARS, gar, init, parse
from garfield.gars.presence import fewest_values

NAN = np.full(3, np.nan, np.float32)


def rows(n, seed=0, d=3):
    return list(np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32))


def told(name, n, f, *, silent=0, bad=0):
    found = [None] * silent + [NAN] * bad + rows(n - silent - bad)
    return parse(name)(found, f=f, explain=True).f


@pytest.mark.parametrize(
    ("name", "n", "f", "silent", "bad", "expected"),
    [
        ("median", 8, 3, 1, 0, 3),  # 7 rows are enough for 3
        ("median", 7, 3, 1, 0, 2),  # 6 rows are not, and bear 2, all that can be left
        ("trimmed-mean", 9, 3, 1, 0, 3),
        ("trimmed-mean", 9, 3, 2, 0, 3),
        ("trimmed-mean", 9, 3, 3, 0, 2),
        ("trimmed-mean", 9, 3, 0, 1, 2),  # not finite: one of the three for sure
        ("trimmed-mean", 9, 3, 1, 1, 2),
        ("trimmed-mean", 7, 3, 1, 1, 2),
        ("trimmed-mean", 7, 3, 2, 1, 1),
        ("trimmed-mean", 9, 3, 0, 3, 0),
        ("multi-krum", 10, 3, 1, 0, 3),
        ("multi-krum", 9, 3, 1, 0, 2),
        ("bulyan", 15, 3, 3, 0, 2),
        ("bucketing(s=2)+median", 13, 3, 1, 0, 2),  # 12 rows are 6 buckets
        ("bucketing(s=2)+median", 14, 3, 1, 0, 3),
    ],
)
def test_silence_lowers_f_only_where_too_few_are_left_for_it(name, n, f, silent, bad, expected):
    assert told(name, n, f, silent=silent, bad=bad) == expected


def test_one_silent_honest_row_does_not_let_the_lies_in():
    honest = [np.full(3, v, np.float32) for v in (0.0, 0.5, 1.0, 1.5, 2.0)]
    lies = [np.full(3, 1000.0, np.float32)] * 3
    for name in ("median", "trimmed-mean"):
        found = GARS[name]([None, *honest, *lies], f=3)
        assert found.max() <= 2.0


def test_more_missing_and_bad_rows_than_f_are_refused_by_their_names():
    with pytest.raises(InputError, match=r"f=1 .* n=9 rows, but 2 .* 0 \(missing\), 1 \(non-f"):
        told("median", 9, 1, silent=1, bad=1)


def test_rows_that_are_too_few_for_the_faults_left_are_refused():
    needs_ten = gar("ten-at-least", needs=lambda f: 10)(lambda rows, *, f: rows.median())
    try:
        with pytest.raises(InputError, match=r"needs 10 rows .* f=1 .* 9 of n=10 are left"):
            needs_ten([None, *rows(9)], f=2)
    finally:
        GARS.remove("ten-at-least")


def test_parameters_are_held_to_the_rows_that_are_left():
    rule = parse("multi-krum(m=5)")
    rule(rows(10), f=3)
    with pytest.raises(ConfigError, match=r"m must be within 1..4 \(n - f - 2\), got 5"):
        rule([None, *rows(9)], f=3)


# -- before anything starts -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n", "f", "least", "text"),
    [
        ("multi-krum(m=5)", 10, 3, 9, r"With 9 of n=10 rows, .* f=3 faults: .* 1..4 .* got 5"),
        ("multi-krum(m=4)", 10, 3, 8, None),
        ("multi-krum(m=4)", 10, 3, 7, r"With 7 of n=10 rows, .* f=2 faults: .* 1..3 .* got 4"),
        ("bulyan(m=7)", 15, 3, 14, None),
        ("bulyan(m=9)", 19, 4, 18, None),
        ("bulyan(m=8)", 16, 3, 15, r"With 15 of n=16 rows, .* f=3 .* 1..7 .* got 8"),
        ("dnc(iterations=3)", 10, 3, 9, r"With 9 of n=10 rows, .* may drop 9 of n=9"),
        ("monna(reference=8)", 9, 2, 7, None),
        ("median", 9, 2, 6, "does without 2 of n=9 rows, and only 6 may"),
        ("trimmed-mean", 7, 3, 4, None),
    ],
)
def test_every_number_of_rows_that_can_occur_is_checked(name, n, f, least, text):
    rule = parse(name)
    rule.check(n, f)
    if text is None:
        rule.check_all(n, f, least=least)
        for left in range(least, n + 1):  # and what was not refused works
            rule([None] * (n - left) + rows(left), f=f)
    else:
        with pytest.raises(ConfigError, match=text):
            rule.check_all(n, f, least=least)


def test_a_rule_whose_need_does_not_fall_with_f_is_refused_beforehand():
    needs_ten = gar("ten-at-least", needs=lambda f: 10)(lambda rows, *, f: rows.median())
    try:
        needs_ten.check_all(10, 0, least=10)
        with pytest.raises(BoundError, match=r"needs 10 rows .* f=1 faults when 9 of n=10"):
            needs_ten.check_all(10, 2, least=9)
    finally:
        GARS.remove("ten-at-least")


def test_parameters_are_checked_for_fewer_faults_too_as_bad_rows_leave_them():
    def even(n, f, **_):
        if f % 2:
            raise ConfigError(f"even needs an even f, got {f}.")

    made = gar("even", needs=lambda f: 2 * f + 1, limits=even)(lambda rows, *, f: rows.median())
    try:
        made.check_all(9, 2, least=9)
        with pytest.raises(ConfigError, match=r"With 8 of n=9 rows, .* f=1 .* an even f, got 1"):
            made.check_all(9, 2, least=8)
        with pytest.raises(ConfigError, match="an even f, got 1"):
            made([NAN, *rows(8)], f=2)
    finally:
        GARS.remove("even")


def test_averaging_may_come_down_to_any_number():
    GARS["average"].check_all(9, 0, least=1)
    np.testing.assert_array_equal(init("average", 3, 0).aggregate([None, NAN * 0, None]), NAN * 0)


# -- parts of rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, rule in GARS.items() if rule.masks])
def test_a_coordinate_of_which_too_little_arrived_is_refused_with_numbers(name):
    present = np.ones((9, 70_000), bool)
    present[:4, 65_537] = False
    some = rows(9, d=70_000)
    assert GARS[name](some, f=2, mask=present, explain=True).f == 2
    present[4, 65_537] = False
    with pytest.raises(InputError, match=r"5 values .* f=2 .* coordinate 65537 only 4 arrived"):
        GARS[name](some, f=2, mask=present)


def test_a_row_lost_on_its_way_lowers_f_for_nobody_and_silence_may():
    some, whole = rows(8), np.ones(3, bool)
    partly = [*([np.array([True, False, True])] * 3), *([whole] * 5)]

    def told(first, mask):
        return GARS["median"]([first, *some], f=2, mask=mask, explain=True).f

    assert told(None, [~whole, *partly]) == 2
    assert told(None, [None, *partly]) == 2
    partly[3] = partly[0]  # four values of a coordinate are left
    assert told(None, [None, *partly]) == 1
    with pytest.raises(InputError, match=r"5 values .* f=2 .* coordinate 1 only 4 arrived"):
        told(None, [~whole, *partly])


def test_a_bad_row_under_a_mask_lowers_f_by_one():
    some = [NAN, *rows(8)]
    present = np.ones((9, 3), bool)
    present[1:6, 2] = False
    explained = GARS["median"](some, f=2, mask=present, explain=True)
    assert explained.f == 1
    assert explained.set_aside == {0: "non-finite"}
    present[6, 2] = False
    with pytest.raises(InputError, match=r"3 values .* f=1 .* coordinate 2 only 2 arrived"):
        GARS["median"](some, f=2, mask=present)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 17, 300])
def test_the_fewest_values_are_counted_over_all_blocks(n):
    rng = np.random.default_rng(n)
    present = rng.random((n, 100_000)) > 0.05
    present[:2] = True
    at, fewest = fewest_values(list(present), enough=n)
    assert fewest == present.sum(axis=0).min() == present[:, at].sum()
    assert fewest_values(list(present), enough=2) == (None, 2)


def test_parameters_are_not_checked_for_fewer_faults_than_can_be_left():
    def at_least_one(n, f, **_):
        if f < 1:
            raise ConfigError(f"at-least-one needs f >= 1, got {f}.")

    made = gar("at-least-one", needs=lambda f: 2 * f + 1, limits=at_least_one)(
        lambda rows, *, f: rows.median()
    )
    try:
        made.check_all(9, 2, least=8)  # one silent, and so one fault at least is left
        with pytest.raises(ConfigError, match="f >= 1, got 0"):
            made.check_all(9, 2, least=7)
    finally:
        GARS.remove("at-least-one")


def test_centered_clipping_may_take_one_step_and_must_take_one():
    clipped = parse("centered-clipping(iterations=1)")
    assert clipped(rows(5), f=1).shape == (3,)
    with pytest.raises(ConfigError, match="iterations must be at least 1, got 0"):
        parse("centered-clipping(iterations=0)").check(5, 1)


def test_dnc_drops_once_unless_it_is_told_to_do_so_more_often():
    many = np.random.default_rng(3).standard_normal((9, 40)).astype(np.float32)
    usual, once, twice = (
        GARS["dnc"](many, 2, seed=4, sample=5, **given)
        for given in ({}, {"iterations": 1}, {"iterations": 2})
    )
    np.testing.assert_array_equal(usual, once)
    assert not np.array_equal(usual, twice)
