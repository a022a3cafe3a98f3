"""Measuring resilience and speed, and showing them."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from garfield.attacks import parse as parse_attack
from garfield.core.errors import ConfigError
from garfield.gars import GARS, parse
from garfield.report import heatmap
from garfield.report.drawing import entitle
from garfield.report.findings import findings, shown, worst
from garfield.report.resilience import NOBODY, Cell, Resilience, Round, grade, measure
from garfield.report.resilience_table import caption, resilience_tables
from garfield.report.speed import MOST_ROWS, columns_timed, time_rules
from garfield.report.tables import bound, duration, formula

N, F, D = 9, 2, 40


@pytest.fixture(scope="module")
def rounds():
    rng = np.random.default_rng(0)
    draw = lambda rows: (1 + 0.3 * rng.standard_normal((rows, D))).astype(np.float32)  # noqa: E731
    return [Round(draw(N - F), draw(F), {"label-flip": -draw(F)}) for _ in range(3)]


def _measured(rounds, rules, attacks, **more):
    named = {name: parse(name) for name in rules}
    return measure(rounds, named, {name: parse_attack(name) for name in attacks}, **more)


# -- resilience -------------------------------------------------------------------------


def test_averaging_is_led_astray_where_the_median_holds(rounds):
    result = _measured(rounds, ["average", "median"], ["reverse"])
    assert result.of("average")["reverse"].error > 10
    assert result.of("median")["reverse"].error < 0.5
    assert result.of("average")[NOBODY].error < 1e-6


def test_what_is_not_finite_is_shown_plainly(rounds):
    errors = _measured(rounds, ["average"], ["nan", "inf"]).of("average")
    assert math.isnan(errors["nan"].error)
    assert not math.isfinite(errors["inf"].error)


def test_silence_leaves_the_honest_mean(rounds):
    assert _measured(rounds, ["average"], ["drop"]).of("average")["drop"].error < 1e-6


def test_attackers_that_lie_in_the_data_send_what_they_computed_there(rounds):
    result = _measured(rounds, ["average"], ["label-flip"])
    now = rounds[0]
    expected = np.vstack([now.honest, now.poisoned["label-flip"]]).mean(axis=0)
    error = np.linalg.norm(expected - now.mean_of_honest) / np.linalg.norm(now.mean_of_honest)
    assert result.of("average")["label-flip"].error == pytest.approx(error, rel=0.2)


def test_a_rule_that_needs_more_rows_says_how_many(rounds):
    cell = _measured(rounds, ["bulyan"], ["reverse"]).of("bulyan")["reverse"]
    assert cell.error is None
    assert cell.note == "needs n ≥ 11"


def test_the_same_seed_gives_the_same_numbers(rounds):
    setting = (["dnc(sample=5)", "bucketing+median"], ["random", "optimal-fall-of-empires"])
    assert _measured(rounds, *setting, seed=3) == _measured(rounds, *setting, seed=3)
    assert _measured(rounds, *setting, seed=3) != _measured(rounds, *setting, seed=4)


def test_each_cell_is_reported_as_it_is_done(rounds):
    steps = []
    _measured(rounds, ["average", "median"], ["reverse"], step=lambda: steps.append(1))
    assert len(steps) == 4


def test_what_is_not_a_number_is_bad():
    assert [grade(error) for error in (0.1, 0.7, 1.0, math.inf, math.nan)] == [
        "good", "fair", "bad", "bad", "bad",
    ]  # fmt: skip


# -- words and tables ---------------------------------------------------------------------


def _result(errors, n=9, f=2):
    """From {rule: {attack: error}}."""
    cells = [Cell(rule, a, e) for rule, by in errors.items() for a, e in by.items()]
    return Resilience(n, f, 40, 1, tuple(cells))


def test_the_findings_follow_the_numbers():
    result = _result(
        {
            "average": {NOBODY: 0.0, "a": 30.0, "b": math.nan, "c": 0.1},
            "good": {NOBODY: 0.1, "a": 0.2, "b": 0.3, "c": 0.1},
            "poor": {NOBODY: 0.9, "a": 0.2, "b": 1.3, "c": 0.1},
            "fine": {NOBODY: 0.2, "a": 0.4, "b": 0.7, "c": 0.1},
        }
    )
    averaging, rules, attacks = findings(result)
    assert "2 liars among 9 ruin the plain average in 2 of 3 attacks" in averaging
    assert "(worst: b, nan)" in averaging
    assert "2 of 3 robust rules" in rules
    assert "poor, 0.90 off already with nobody lying" in rules
    assert "steadiest is good, never more than 0.30 off (b)" in rules
    assert "Hardest for them is b" in attacks
    assert worst(result, "fine") == ("b", 0.7)


def test_findings_do_without_a_baseline_and_with_a_single_rule():
    assert findings(_result({"good": {NOBODY: 0.1, "a": 0.2}})) == [
        "Under a, its worst case, good is 0.20 off."
    ]
    assert findings(_result({"average": {NOBODY: 0.0, "a": 0.2}}))[0].startswith("No attack")
    assert findings(_result({"good": {NOBODY: 0.1}})) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (0.0, "0.00"), (9.99, "9.99"), (9.999, "10"), (64.2, "64"), (999.6, "1e3"),
        (12345, "1e4"), (3.4e40, "3e40"), (math.inf, "∞"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_errors_are_shown_short(error, text):
    assert shown(error) == text


@pytest.mark.parametrize("width", [60, 100, 160])
def test_tables_keep_to_the_width_and_to_every_number(width):
    rules = ["average", "geometric-median", "nnm+trimmed-mean", *(f"rule-{i}" for i in range(12))]
    attacks = [NOBODY, "optimal-little-is-enough", "nan"]
    values = {rule: dict.fromkeys(attacks, 1.25 + i) for i, rule in enumerate(rules)}
    out = Console(width=width, file=io.StringIO(), color_system=None)
    tables = list(resilience_tables(_result(values), width))
    for table in tables:
        out.print(table)
    text = out.file.getvalue()
    assert "…" not in text
    assert all(text.count(shown(1.25 + i) + "✗") == 4 for i in range(len(rules)))
    assert (len(tables) == 1) == (width == 160)


def test_the_caption_states_the_measure():
    assert "|aggregate − honest mean| / |honest mean|" in caption(_result({"a": {NOBODY: 0.0}}))


def test_bounds_and_formulas_are_read_off_the_extensions():
    assert bound(GARS["bulyan"]) == "4f + 3"
    assert bound(GARS["average"]) == "1"
    assert "factor" in formula(parse_attack("reverse"))
    assert [duration(s) for s in (2.5, 0.0304, 5e-6)] == ["2.5 s", "30.4 ms", "5 µs"]


@pytest.mark.slow
def test_the_picture_is_drawn_with_gaps_and_infinities(tmp_path):
    result = Resilience(
        9, 2, 40, 1,
        (
            Cell("average", NOBODY, 0.0), Cell("average", "nan", math.nan),
            Cell("bulyan", NOBODY, None, "needs n ≥ 11"), Cell("bulyan", "nan", None),
        ),
    )  # fmt: skip
    heatmap.draw(result, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_an_impossible_picture_is_refused_beforehand(tmp_path):
    with pytest.raises(ConfigError, match="ends in"):
        heatmap.check(tmp_path / "map.bmp")
    with pytest.raises(ConfigError, match="no folder"):
        heatmap.check(tmp_path / "nowhere" / "map.png")


# -- speed --------------------------------------------------------------------------------


def test_rules_are_timed_narrow_and_scaled_to_d():
    times = dict(time_rules([GARS["average"], GARS["median"]], 5, 1, 10_000))
    assert all(seconds > 0 for seconds in times.values())
    wide = dict(time_rules([GARS["median"]], 300, 1, 10**9, budget_s=60))
    assert wide["median"] > times["median"]


def test_the_time_budget_is_kept():
    ticks = iter(range(10**6))
    times = dict(
        time_rules(GARS.values(), 5, 1, 100, budget_s=20, clock=lambda: float(next(ticks)))
    )
    assert set(times) == set(GARS)
    timed = [name for name, seconds in times.items() if seconds is not None]
    assert 0 < len(timed) < 4


def test_too_many_rows_are_not_timed():
    assert dict(time_rules([GARS["median"]], MOST_ROWS + 1, 1, 100)) == {"median": None}


def test_the_rows_timed_never_fill_the_memory():
    for n in (1, 20, MOST_ROWS):
        assert 4 * n * columns_timed(n, 10**12) <= 2**27


def test_a_title_is_not_broken_inside_a_name():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = pyplot.figure(figsize=(10, 3))
    name = "optimal-little-is-enough"
    entitle(figure, f"Who was trusted when · ssmw, nnm+trimmed-mean, 20 workers, 4 lying ({name})")
    title = figure.get_suptitle()
    assert "\n" in title
    assert name in title
    pyplot.close(figure)
