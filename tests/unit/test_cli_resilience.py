"""The table of rules and attacks on a tiny setting: real gradients of a real model."""

import json
import sys

import pytest

from tests.command import invoke

pytest.importorskip("torch")

_TINY = ("resilience", "--n", "7", "--f", "2", "--rounds", "1")
_RULES = ("--rules", "average,median,bulyan", "--rules", "nnm+trimmed-mean")
_ATTACKS = ("--attacks", "reverse,nan,label-flip")


@pytest.fixture(scope="module")
def told():
    result = invoke([*_TINY, *_RULES, *_ATTACKS, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _error(told, rule, attack):
    return next(c["error"] for c in told["cells"] if (c["rule"], c["attack"]) == (rule, attack))


@pytest.mark.slow
def test_averaging_lands_far_away_where_the_median_stays_near(told):
    assert _error(told, "average", "reverse") > 10
    assert _error(told, "median", "reverse") < 1
    assert _error(told, "nnm+trimmed-mean", "reverse") < 1


@pytest.mark.slow
def test_the_json_is_valid_and_nan_is_null(told):
    assert _error(told, "average", "nan") is None
    assert _error(told, "median", "nan") < 1


@pytest.mark.slow
def test_attackers_really_learn_from_flipped_labels(told):
    assert 0.1 < _error(told, "average", "label-flip") < 10


def test_a_rule_with_too_few_rows_is_listed_with_what_it_needs(told):
    cell = next(cell for cell in told["cells"] if cell["rule"] == "bulyan")
    assert cell["error"] is None
    assert cell["note"] == "needs n ≥ 11"


def test_numbers_and_words_come_along(told):
    assert (told["n"], told["f"], told["d"], told["rounds"], told["seed"]) == (7, 2, 79_510, 1, 0)
    assert "in 2 of 3 attacks" in told["findings"][0]


@pytest.mark.slow
def test_the_table_and_the_picture(tmp_path):
    path = tmp_path / "errors.png"
    result = invoke([*_TINY, *_RULES, *_ATTACKS, "--picture", str(path)])
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 10_000
    assert all(word in result.stdout for word in ("average", "label-flip", "nan✗", "n ≥ 11"))
    assert "ruin the plain average" in result.stdout


def test_without_torch_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = invoke([*_TINY, *_RULES, *_ATTACKS])
    assert result.exit_code == 2
    assert "pip install 'garfield-ml[torch]'" in result.stderr
