"""What the demo says of its three runs."""

import pytest

from garfield.report.comparison import Entry, draw, sentences, table
from garfield.report.run_history import Point
from garfield.report.scores import ACCURACY, Score


def entry(label, rule, accuracy, liars=2, diverged=None, steps=10):
    curve = [
        Point(step, step / 10, Score(ACCURACY, accuracy), None) for step in range(2, steps + 1, 2)
    ]
    summary = {
        "accuracy": accuracy, "updates_per_s": 4.0, "total_steps": 10, "diverged": diverged,
    }  # fmt: skip
    return Entry(label, liars, "reverse", rule, summary, curve)


@pytest.fixture
def runs():
    calm = entry("vanilla", "averaging", 0.8, liars=0)
    attacked = entry("vanilla attacked", "averaging", 0.1, diverged="it overflows", steps=4)
    return [calm, attacked, entry("robust attacked", "multi-krum", 0.78)]


def test_two_sentences_from_the_numbers(runs):
    harm, remedy = sentences(runs, 9)
    assert harm.startswith("2 liars among 9 workers cost plain averaging 70 points: 80.0 % without")
    assert "overflow" in harm
    assert remedy == (
        "With the same liars, multi-krum reaches 78.0 %, 2.0 points less than averaging does "
        "with nobody lying."
    )


def test_an_attack_that_did_no_harm_is_not_said_to_have_done_any(runs):
    harm, _ = sentences([runs[0], entry("x", "averaging", 0.8), runs[2]], 9)
    assert "no harm" in harm


def test_the_table_and_the_picture(runs, tmp_path):
    assert [column.header for column in table(runs).columns] == [
        "run", "liars", "rule", "accuracy", "updates/s",
    ]  # fmt: skip
    draw(runs, "who learns?", tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000
