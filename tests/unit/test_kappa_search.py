"""How the search for κ goes: what it begins with, how it changes rows, whom it lets go on.

What it finds is held to theory in test_kappa. Here its parts are driven by draws that are
written down, so that each of them does what its description says, to the digit.
"""

import inspect
import math
from itertools import islice, permutations, product

import numpy as np
import pytest

import garfield
from garfield import GARS
from garfield.attacks import ATTACKS, attack
from garfield.gars import gar, parse
from garfield.gars.robustness import proven_kappa, starts, subsets, worst_kappa
from garfield.gars.robustness import search as searching
from garfield.gars.robustness.mutations import changed
from garfield.gars.robustness.search import _better, _climb, _Found, _judge_starts, _Search
from garfield.gars.robustness.starts import FAMILIES, Start, attacked, two_points, varied


class Draws:
    """Stands in for a generator: one end of every range, and whole numbers as they are listed."""

    def __init__(self, *numbers, end=0):
        self.numbers, self.end = list(numbers), end
        self.ranges = []
        """Of which whole numbers each one was drawn."""

    def uniform(self, low, high):
        return (low, high)[self.end]

    def normal(self, mean, deviation):
        return mean + deviation

    def standard_normal(self, shape=()):
        return np.full(shape, 2.0)

    def standard_t(self, freedom, shape):
        assert 1 < freedom < 2  # a mean, and no variance
        return np.full(shape, 3.0)

    def random(self):
        return 0.25

    def choice(self, among, size=None):
        return among[-1] if size is None else np.resize(among, size)

    def integers(self, low, high=None):
        self.ranges.append((0, low) if high is None else (low, high))
        return self.numbers.pop(0)


@pytest.fixture
def registered():
    """Registers rules and attacks for the length of a test."""
    names = []

    def keep(registry, thing):
        names.append((registry, thing.name))
        return thing

    yield keep
    for registry, name in names:
        registry.remove(name)


# -- changes of rows ------------------------------------------------------------------------------

HONEST = np.arange(3)
ROWS = np.array([[0.0, 4.0], [2.0, 1.0], [7.0, 4.0], [11.0, -3.0], [5.0, 6.0]])
MEAN = np.array([3.0, 3.0])
SPREAD = math.sqrt((9 + 1 + 1 + 4 + 16 + 1) / 6)
SIZES = {0: 1e-3 * SPREAD, 1: 10**0.5 * SPREAD}
"""How far a change goes: from a thousandth of what honest rows differ to three times as far."""


def with_rows(changes):
    expected = ROWS.copy()
    for place, row in changes.items():
        expected[place] = row
    return expected


@pytest.mark.parametrize("end", [0, 1])
def test_changes_are_what_is_said_beside_them(end):
    size = SIZES[end]
    step = 2 * size
    near = MEAN + 10**0.3 * (ROWS[1] - MEAN)
    expected = [
        ((1, 0), with_rows({1: ROWS[1] + step})),  # one row
        ((1, 1, 0), with_rows({(1, 0): ROWS[1, 0] + step})),  # one number
        ((1, 2, 4), with_rows({1: ROWS[4]})),  # two rows meet
        ((1, 3), with_rows({1: near})),  # away from the honest mean
        ((1, 4), with_rows({3: ROWS[4] + step, 4: ROWS[4] + step})),  # the liars go elsewhere
        ((1, 5), with_rows({i: MEAN + 10**0.1 * (ROWS[i] - MEAN) for i in range(3)})),
        ((1, 6, 3), with_rows({1: ROWS[1] + step, 3: ROWS[3] + step})),  # two move together
        ((1, 7), ROWS + step),
    ]
    for numbers, rows in expected:
        draws = Draws(*numbers, end=end)
        np.testing.assert_allclose(changed(ROWS, HONEST, draws), rows, rtol=1e-12)
        assert draws.ranges[:2] == [(0, 5), (0, 8)]  # any row, and any of eight ways
        if len(numbers) == 3:
            assert draws.ranges[2] == ((0, 2) if numbers[1] == 1 else (0, 5))


def test_rows_that_are_all_alike_are_changed_by_about_one():
    alike = np.full((3, 2), 5.0)
    np.testing.assert_allclose(changed(alike, HONEST, Draws(1, 7)), alike + 2e-3)


def test_where_nobody_lies_all_rows_move_in_place_of_the_liars():
    alike = np.full((3, 2), 5.0)
    np.testing.assert_allclose(changed(alike, HONEST, Draws(1, 4)), alike + 2e-3)


def test_rows_that_are_changed_are_a_copy():
    before = ROWS.copy()
    changed(ROWS, HONEST, Draws(1, 7))
    np.testing.assert_array_equal(ROWS, before)


# -- where it begins ------------------------------------------------------------------------------


def test_two_points_are_every_number_of_ones_beside_lies_at_between_and_beyond_them():
    found = [(start.rows[:, 0].tolist(), start.name) for start in two_points(4, 1)]
    lies = (0.0, 1.0, 0.5, 2.0, 1000.0)
    assert found == [
        ([*honest, lie], f"two points ({sum(honest):.0f} of 3 apart)")
        for honest, lie in product(([0.0, 0.0, 1.0], [0.0, 1.0, 1.0]), lies)
    ]
    alone = [start.rows[:, 0].tolist() for start in two_points(3, 0)]
    assert alone == [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]


UNIT = np.full(4, 0.5)  # of equal draws, in four dimensions


@pytest.mark.parametrize("end", [0, 1])
def test_families_are_what_their_names_say(end):
    near, far = 10.0 ** (-3, 0)[end], 10.0 ** (0, 2)[end]
    clusters = np.full((3, 4), 2 * near)
    clusters[:2] += 2 + UNIT
    outlier = np.full((3, 4), 2.0)
    outlier[0] += far * UNIT
    coordinate = np.full((3, 4), 0.02)
    coordinate[:, 0] += 2
    expected = {
        "gaussian": np.full((3, 4), 2.0), "heavy-tailed": np.full((3, 4), 3.0),
        "clusters": clusters, "one outlier": outlier, "one coordinate": coordinate,
        "corners": np.eye(3, 4),
    }  # fmt: skip
    assert set(FAMILIES) == set(expected)
    for name, draw in FAMILIES.items():
        draws = Draws(2, end=end)
        np.testing.assert_allclose(draw(3, 4, draws), expected[name], rtol=1e-12, err_msg=name)
        assert draws.ranges == ([(1, 3)] if name == "clusters" else []), name  # none is empty


def test_more_rows_than_corners_stand_on_both_ends_of_each_axis():
    rows = FAMILIES["corners"](4, 3, Draws())
    assert rows.tolist() == [[-1.0, 0, 0], [0, 1.0, 0], [0, 0, -1.0], [1.0, 0, 0]]
    assert FAMILIES["corners"](3, 3, Draws()).tolist() == np.eye(3).tolist()


def test_one_row_is_a_cluster_and_two_are_two():
    np.testing.assert_allclose(FAMILIES["clusters"](1, 4, Draws()), np.full((1, 4), 2e-3))
    two = FAMILIES["clusters"](2, 4, Draws(1))
    np.testing.assert_allclose(two[0] - two[1], 2 + UNIT)


def test_honest_rows_are_seen_from_near_and_far_in_as_many_dimensions_as_tell_rows_apart(
    monkeypatch,
):
    """In 1, 2, 5 and n − 1, each with its mean 0, 1 or 10 deviations away."""
    monkeypatch.setattr(starts, "FAMILIES", {"zeros": lambda h, d, rng: np.zeros((h, d))})
    found = list(islice(attacked(9, 0, np.random.default_rng(0), defence=None), 80))
    assert [start.rows.shape for start in found[:5]] == [(9, 1), (9, 2), (9, 5), (9, 8), (9, 1)]
    lengths = {round(float(np.linalg.norm(start.rows[0])), 6) for start in found}
    assert lengths == {0.0, 1.0, 10.0}
    assert all((start.rows == start.rows[0]).all() for start in found)
    assert {(start.name, start.attack) for start in found} == {
        (f"zeros, d = {d}", None) for d in (1, 2, 5, 8)
    }


def test_every_attack_on_vectors_is_tried_on_every_family():
    """Under its own name alone; those on labels have no rows to lie in."""
    average = lambda rows: np.mean(rows, axis=0)  # noqa: E731
    of_vectors = {name for name, a in ATTACKS.items() if a.kind == "vector" and a.name == name}
    count = 3 * len(FAMILIES) * len(of_vectors)
    found = list(islice(attacked(5, 1, np.random.default_rng(0), average), count))
    tried = {start.attack.partition("(")[0] for start in found}
    assert tried <= of_vectors
    assert len(tried) > 0.8 * len(of_vectors)
    assert {start.name.partition(",")[0] for start in found} == set(FAMILIES)
    assert all(start.rows.shape[0] == 5 for start in found)


def test_who_says_nothing_is_a_row_of_nan_and_who_cannot_lie_there_is_passed_over(
    registered, monkeypatch
):
    @attack("say-nothing", knows="nothing")
    def say_nothing(view):
        return None

    @attack("cannot", knows="nothing")
    def cannot(view):
        raise garfield.ConfigError("Not here.")

    monkeypatch.setattr(
        starts, "ATTACKS", {"cannot": cannot, "say-nothing": say_nothing, "alias": say_nothing}
    )
    registered(ATTACKS, say_nothing)
    registered(ATTACKS, cannot)
    found = list(islice(attacked(7, 2, np.random.default_rng(0), lambda rows: rows[0]), 12))
    assert {start.attack for start in found} == {"say-nothing"}
    # one start for each family, six of them, and then the next number of dimensions
    assert [start.rows.shape for start in found] == [(7, 1)] * 6 + [(7, 2)] * 6
    for start in found:
        assert np.isfinite(start.rows[:5]).all()
        assert np.isnan(start.rows[5:]).all()


def test_parameters_are_drawn_anew_and_those_that_are_no_strength_are_left_alone(registered):
    @attack("many-sided", knows="nothing")
    def many_sided(
        view, *, trials=60, least=0.05, most=20.0, word="a", flag=True, count=3, size=4.0, z=None
    ):
        return np.zeros(view.d)

    registered(ATTACKS, many_sided)
    rng = np.random.default_rng(0)
    drawn = [varied(many_sided, rng).params for _ in range(400)]
    assert all(params.keys() <= {"trials", "count", "size", "z"} for params in drawn)
    assert {params["trials"] for params in drawn} == {12}
    assert {params.get("count") for params in drawn} == {None, 3, -3}
    kept = sum("size" not in params for params in drawn)
    assert 60 < kept < 140  # a quarter keep their own
    sizes = np.array([params["size"] for params in drawn if "size" in params])
    assert 0.4 < (sizes > 0).mean() < 0.6
    assert all(params.get("z", 1.0) > 0 for params in drawn)


def test_parameters_are_drawn_from_a_thirtieth_to_thirty_times_their_own():
    ends = {starts._another(4.0, Draws(end=end)) for end in (0, 1)}
    assert ends == {4.0 * 10**-1.5, 4.0 * 10**1.5}
    assert {starts._another(None, Draws(end=end)) for end in (0, 1)} == {10**-1.5, 10**1.5}
    assert starts._another(3, Draws()) == 3
    assert starts._another(True, Draws()) is None
    assert starts._another("word", Draws()) is None


def test_a_parameter_out_of_its_range_stays_as_it_was_and_the_others_are_drawn(registered):
    def positive(scale, other):
        if scale < 0:
            raise garfield.ConfigError("scale must be positive.")

    @attack("limited", knows="nothing", limits=positive)
    def limited(view, *, scale=1.0, other=1.0):
        return np.zeros(view.d)

    registered(ATTACKS, limited)
    rng = np.random.default_rng(0)
    drawn = [varied(limited, rng).params for _ in range(100)]
    assert all(params.get("scale", 1.0) > 0 for params in drawn)
    without = [params for params in drawn if "scale" not in params]
    assert any("other" in params for params in without)


# -- the search itself ----------------------------------------------------------------------------


def constant(registered, name, answer):
    """A rule that says the same whatever its rows are, in as many dimensions."""

    @gar(name, needs=lambda f: 2 * f + 1)
    def rule(rows, *, f):
        return np.resize(np.asarray(answer, np.float64), rows.d)

    registered(GARS, rule)


def counted(registered, monkeypatch):
    """The calls of a median, where starts beyond the two points are all the same."""
    calls = []

    @gar("counted-median", needs=lambda f: 2 * f + 1)
    def rule(rows, *, f):
        calls.append(rows.n)
        return rows.median()

    registered(GARS, rule)
    plain = (Start(np.arange(float(n))[:, None], "plain") for n in iter(lambda: calls[0], 0))
    monkeypatch.setattr(searching, "attacked", lambda *_: plain)
    return calls


def test_ten_thousand_calls_from_seed_0_unless_said_otherwise():
    defaults = inspect.signature(worst_kappa).parameters
    assert defaults["budget"].default == 10_000
    told = worst_kappa("krum", n=7, f=1, budget=120)
    same = worst_kappa("krum", n=7, f=1, budget=120, seed=0)
    np.testing.assert_array_equal(told.rows, same.rows)
    assert told.by == same.by
    assert "rows" not in repr(told)


@pytest.mark.parametrize("budget", [1, 2, 15, 16, 60])
def test_no_call_is_made_beyond_the_budget_and_none_is_left_unless_an_attack_took_many(
    registered, monkeypatch, budget
):
    calls = counted(registered, monkeypatch)
    found = worst_kappa("counted-median", n=4, f=1, budget=budget)
    assert found.calls == budget == len(calls)


def test_a_third_of_what_two_points_leave_goes_to_starts(registered, monkeypatch):
    counted(registered, monkeypatch)
    search = _Search(GARS["counted-median"], 9, 1, 635, lambda calls: None)
    _judge_starts(search, np.random.default_rng(0), lambda: False)
    assert search.calls == 35 + 200  # 7 numbers of ones, 5 lies each, then a third of 600


def test_time_ends_each_part_of_a_search_at_once(registered, monkeypatch):
    """By a clock that ticks whenever it is looked at."""
    counted(registered, monkeypatch)
    for seconds in (1, 4, 10, 13, 60):
        ticks = iter(range(10_000))
        found = worst_kappa(
            "counted-median", n=4, f=1, budget=100, seconds=seconds, clock=ticks.__next__
        )
        looked = next(ticks) - 1
        # time is up at tick `seconds`; after that each part that is still to come looks once
        assert looked - seconds <= 2
        assert found.calls <= seconds
        assert found.calls >= min(seconds - 3, 100)


def test_time_that_is_just_up_is_up(monkeypatch):
    now = [0.0]

    def one_start(search, rng, late):
        search.judge(next(two_points(5, 1)))
        now[0] = 5.0

    monkeypatch.setattr(searching, "_judge_starts", one_start)
    found = worst_kappa("median", n=5, f=1, budget=9, seconds=5.0, clock=lambda: now[0])
    assert found.calls == 1


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"seconds": 0.0}, {"seconds": math.nan}])
def test_a_search_that_cannot_begin_is_refused(wrong):
    with pytest.raises(garfield.ConfigError, match="at least 1 and some seconds"):
        worst_kappa("median", n=5, f=1, **wrong)
    assert worst_kappa("median", n=5, f=1, budget=1, seconds=0.5).calls == 1


def test_a_rule_that_draws_is_judged_with_the_draw_of_seed_0():
    found = worst_kappa("bucketing+median", n=9, f=1, budget=200)
    answer = parse("bucketing+median").seeded(0)(found.rows, 1)
    assert subsets.ratio_of(found.rows, answer, np.array(found.honest)) == pytest.approx(
        found.found, rel=1e-6
    )


def test_where_nothing_is_found_nothing_is_shown():
    found = worst_kappa("average", n=4, f=0, budget=20)
    assert (found.found, found.by) == (found.by_attack, found.attack) == (0.0, "nothing")
    assert found.rows.tolist() == [[0.0]] * 4
    assert found.honest == (0, 1, 2, 3)


@pytest.mark.parametrize("answer", [[1e200, 0.0], [math.nan, 0.0], [math.nan, math.nan]])
def test_an_answer_of_which_one_number_is_too_far_is_no_bound_and_the_attack_is_credited(
    registered, answer
):
    constant(registered, "too-far", answer)
    search = _Search(GARS["too-far"], 5, 1, 100, lambda calls: None)
    rows = np.random.default_rng(0).standard_normal((5, 2))
    found = search.judge(Start(rows, "rows", "an-attack"))
    assert found.kappa == math.inf == search.attack.kappa == search.best.kappa
    assert found.by == "an-attack on rows"
    assert found.honest.tolist() == [0, 1, 2, 3]


def test_of_equals_the_first_is_told_and_attacks_are_told_apart(registered):
    constant(registered, "says-one", 1.0)
    search = _Search(GARS["says-one"], 4, 1, 100, lambda calls: None)
    rows = np.array([[0.0], [0.1], [0.2], [9.0]])
    first = search.judge(Start(rows, "first"))
    assert search.attack.by == "nothing"  # no attack told that
    one = search.judge(Start(rows, "second", "one"))
    other = search.judge(Start(rows, "third", "other"))
    assert search.best is search.tops[1] is first
    assert one.kappa == other.kappa == first.kappa
    assert search.attack.by == "one on second"
    assert search.attack.kappa == subsets.ratio_of(rows, np.array([1.0]), np.arange(3))
    wide = search.judge(Start(np.hstack([rows, rows]), "two dimensions"))
    assert {d: top.by for d, top in search.tops.items()} == {1: "first", 2: "two dimensions"}
    assert wide.kappa == pytest.approx(first.kappa)  # and is no better for it
    worse = search.judge(Start(np.array([[0.0], [0.01], [0.02], [9.0]]), "worse", "third"))
    assert search.best is search.tops[1] is worse
    assert search.attack.by == "third on worse"


def found_of(d, kappa):
    return _Found(kappa, f"of {d}", np.zeros((4, d)), np.arange(3))


def climb(registered, monkeypatch, tops, *, calls=2, budget=402, late=lambda: False):
    """The dimensions of the rows that are changed, in turn; nothing ever gets better."""
    if "says-one" not in GARS:
        constant(registered, "says-one", 1.0)
    changes = []

    def same(rows, honest, rng):
        changes.append(rows.shape[1])
        return rows

    monkeypatch.setattr(searching, "changed", same)
    search = _Search(GARS["says-one"], 4, 1, budget, lambda calls: None)
    search.calls, search.tops = calls, dict(tops)
    monkeypatch.setattr(search, "judge", lambda start: _spent(search))
    _climb(search, np.random.default_rng(0), late)
    return changes


def _spent(search):
    search.calls += 1


def test_dimensions_have_turns_of_fifty_and_from_half_time_on_the_worst_alone(
    registered, monkeypatch
):
    tops = {1: found_of(1, 0.5), 3: found_of(3, 2.0)}
    changes = climb(registered, monkeypatch, tops)
    assert changes == ([3] * 50 + [1] * 50) * 2 + [3] * 200


def test_half_time_is_half_of_what_is_left(registered, monkeypatch):
    tops = {1: found_of(1, 0.5), 3: found_of(3, 2.0)}
    changes = climb(registered, monkeypatch, tops, calls=200, budget=402)
    assert changes == [3] * 50 + [1] * 50 + [3] * 50 + [1] * 50 + [3] * 2


def test_what_has_no_bound_is_not_made_worse(registered, monkeypatch):
    assert climb(registered, monkeypatch, {1: found_of(1, math.inf)}) == []


def test_time_ends_a_climb_in_the_middle_of_a_turn(registered, monkeypatch):
    looks = iter([False] * 8 + [True] * 100)
    changes = climb(registered, monkeypatch, {1: found_of(1, 1.0)}, late=lambda: next(looks))
    assert len(changes) == 7  # it looks before the turn, and before each change


def test_a_change_is_kept_unless_it_is_better_for_those_who_are_honest():
    here = found_of(1, 1.0)
    for kappa, kept in ((0.9, False), (1.0, True), (1.1, True)):
        there = found_of(1, kappa)
        assert (_better(here, there) is there) == kept
    assert _better(here, None) is here


def test_rows_are_said_to_be_moved_once_however_often_they_are():
    found = worst_kappa("multi-krum", n=7, f=1, budget=300)
    assert found.by.count("moved freely") == 1
    assert found.by.endswith(", then moved freely")


# -- whose view is the worst ----------------------------------------------------------------------


@pytest.mark.parametrize("most_sets", [3000, 0])
def test_the_worst_set_is_the_same_in_any_unit(monkeypatch, most_sets):
    monkeypatch.setattr(subsets, "_MOST_SETS", most_sets)
    rng = np.random.default_rng(1)
    for _ in range(10):
        rows, answer = rng.standard_normal((7, 3)), rng.standard_normal(3)
        ratio, honest = subsets.worst_set(rows, answer, 2)
        for unit in (1e-9, 1e9):
            other, chosen = subsets.worst_set(unit * rows, unit * answer, 2)
            assert other == pytest.approx(ratio)
            assert chosen.tolist() == honest.tolist()


def test_the_worst_set_is_of_all_but_f_however_it_is_looked_for(monkeypatch):
    rng = np.random.default_rng(2)
    monkeypatch.setattr(subsets, "_MOST_SETS", 0)
    for _ in range(30):
        rows, answer = rng.standard_t(2, (9, 2)), rng.standard_normal(2)
        assert len(set(subsets.worst_set(rows, answer, 3)[1].tolist())) == 6


def test_a_row_is_unusable_from_the_largest_number_on_in_one_coordinate():
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [0.0, subsets.FAR]])
    ratio, honest = subsets.worst_set(rows, np.zeros(2), 1)
    assert honest.tolist() == [0, 1, 2]
    assert ratio > 0
    none, fewer = subsets.worst_set(rows, np.zeros(2), 0)  # four are wanted, and three are left
    assert (none, fewer.tolist()) == (0.0, [0, 1, 2])


def test_a_ratio_beyond_a_million_is_none():
    def ratio(away):
        return subsets.ratio_of(np.array([[away + 1], [away - 1]]), np.zeros(1), np.arange(2))

    assert ratio(999.9998) == pytest.approx(999_999.6)
    assert ratio(1000.0) == 1e6
    assert ratio(1000.0002) == math.inf


def test_what_is_rounding_is_told_by_the_answer_and_by_the_rows():
    """1e-10 of the longer of the two: a deviation below that is none, and moves nobody."""
    near, far = np.array([[1.0], [1.0 + 1e-12]]), np.array([[1.0], [1.0 + 1e-8]])
    assert subsets.ratio_of(near, np.array([1.0]), np.arange(2)) == 0.0
    assert subsets.ratio_of(far, np.array([1.0]), np.arange(2)) == pytest.approx(1.0)
    for unit in (1e-6, 1e6):  # the answer's own length, where the rows are close to it
        answer = unit * np.array([1.0])
        assert subsets.worst_set(unit * near, answer, 0)[0] == 0.0
        assert subsets.worst_set(unit * far, answer, 0)[0] == pytest.approx(1.0)
        assert subsets.ratio_of(unit * near, answer, np.arange(2)) == 0.0
        assert subsets.ratio_of(unit * far, answer, np.arange(2)) == pytest.approx(1.0)
    wide = np.array([[-2.0], [1.0], [1.0]])  # the rows', where the answer is short
    assert subsets.worst_set(wide, np.array([1.5e-10]), 0)[0] == 0.0
    assert subsets.worst_set(wide, np.array([2.5e-10]), 0)[0] > 0.0
    assert subsets.ratio_of(wide, np.array([1.5e-10]), np.arange(3)) == 0.0


def test_a_row_far_out_hides_nothing_wherever_it_stands():
    for order in permutations([1.0, 1.1, 1.2, 1e80]):
        ratio, honest = subsets.worst_set(np.array(order)[:, None], np.array([0.0]), 1)
        assert ratio == pytest.approx(1.1**2 / (0.02 / 3))
        assert len(honest) == 3


# -- theory ---------------------------------------------------------------------------------------


def test_an_average_without_liars_is_the_honest_mean():
    assert proven_kappa(GARS["average"], 5, 0).kappa == 0.0
    assert proven_kappa(GARS["average"], 5, 1).kappa == math.inf


def test_nothing_is_proven_of_rows_that_are_too_few():
    with pytest.raises(garfield.BoundError, match="krum needs n >= 9"):
        proven_kappa(GARS["krum"], 8, 3)
    assert proven_kappa(GARS["median"], 5, 2).kappa == 36.0  # as few as it takes


def test_a_bound_names_the_papers_of_all_its_stages():
    both = proven_kappa(parse("arc+median"), 17, 3).source
    assert "AISTATS 2023" in both
    assert "ICLR 2025" in both
