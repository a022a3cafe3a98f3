"""What becomes of a round of Flower's, without Flower: models in, one out, and who was left out."""

import math
import sys

import numpy as np
import pytest

import garfield
from garfield.flower.rounds import RobustRounds, middle


def models(n, **others):
    rng = np.random.default_rng(0)
    honest = {f"n{i}": {"w": rng.standard_normal((2, 3)), "seen": np.int64([i])} for i in range(n)}
    return {**honest, **others}


def aggregate(rounds, given, asked=None, unreadable=None, start=None):
    asked = len(given) if asked is None else asked
    return rounds.aggregate(given, asked=asked, unreadable=unreadable or {}, start=start)


def test_nan_another_shape_and_bytes_that_are_none_leave_the_model_with_the_honest():
    bad = {
        "nan": {"w": np.full((2, 3), np.nan), "seen": np.int64([0])},
        "shape": {"w": np.ones((3, 2)), "seen": np.int64([0])},
    }
    outcome = aggregate(RobustRounds("median", 4), models(6, **bad), 10, {"junk": "unreadable: x"})
    assert outcome.excluded == {
        "nan": "non-finite",
        "shape": "misfit: at ['w'] shape (3, 2) where row 0 has (2, 3)",
        "junk": "unreadable: x",
    }
    assert outcome.silent == 1
    expected = np.median([model["w"] for model in models(6).values()], axis=0)
    np.testing.assert_allclose(outcome.model["w"], expected)
    assert outcome.model["seen"].dtype == np.int64


def test_whom_a_rule_does_not_trust_is_named():
    far = {"far": {"w": np.full((2, 3), 1e6), "seen": np.int64([0])}}
    outcome = aggregate(RobustRounds("multi-krum", 2), models(6, **far))
    assert outcome.excluded["far"] == "not trusted by multi-krum"
    assert len(outcome.excluded) == 4  # all but n - f - 2


def test_too_few_replies_are_refused_in_words_with_their_nodes():
    outcome = aggregate(RobustRounds("median", 2), models(3), asked=7)
    assert outcome.model is None
    assert outcome.silent == 4
    assert "f=2 faults among n=7 rows, but 4 cannot be used" in outcome.refused
    assert "Rows are the nodes n0, n1, n2" in outcome.refused
    assert "needs n >= 7 inputs" in aggregate(RobustRounds("krum", 2), models(6)).refused
    assert (
        aggregate(RobustRounds("median", 2), {}, asked=5).refused == "None of 5 nodes sent a model."
    )


def test_a_strategy_that_may_ask_too_few_nodes_is_refused_before_anything_starts():
    with pytest.raises(garfield.BoundError, match=r"n >= 7 .* may ask only 2.*min_train_nodes=7"):
        RobustRounds("krum", 2).require(2, "FedAvg", "min_train_nodes")
    RobustRounds("krum", 2).require(None, "Mine", "min_train_nodes")
    with pytest.raises(garfield.ConfigError, match="f must be a whole number"):
        RobustRounds("krum", -1)


def test_a_rule_that_hangs_on_the_origin_is_given_changes():
    start = {"w": np.full((2, 3), 100.0), "seen": np.int64([0])}
    moved = {
        name: {"w": start["w"] + 0.1 * model["w"], "seen": model["seen"]}
        for name, model in models(5).items()
    }
    outcome = aggregate(RobustRounds("clipping(tau=1.0)+median", 2), moved, start=start)
    expected = np.median([model["w"] for model in moved.values()], axis=0)
    np.testing.assert_allclose(outcome.model["w"], expected, atol=1e-9)


def test_a_rule_that_remembers_begins_anew_when_the_number_of_nodes_changes():
    rounds = RobustRounds("centered-clipping(tau=0.1)", 1)
    aggregate(rounds, models(5))
    again = aggregate(rounds, models(6)).model["w"]
    fresh = aggregate(RobustRounds("centered-clipping(tau=0.1)", 1), models(6)).model["w"]
    np.testing.assert_array_equal(again, fresh)


def test_metrics_are_medians_that_one_claim_does_not_move():
    records = [
        {"loss": 1.0, "parts": [1, 2], "mine": 3},
        {"loss": 2.0, "parts": [3, 4]},
        {"loss": 1e9, "parts": "x", "name": "evil"},
        {"loss": math.nan, "parts": [5, 6]},
    ]
    assert middle(records) == {"loss": 2.0, "parts": [3, 4]}
    assert middle([]) == {}


def test_without_flower_it_is_said_how_to_install_it(monkeypatch):
    import garfield.flower

    monkeypatch.setitem(sys.modules, "flwr", None)
    for module in [name for name in sys.modules if name.startswith("garfield.flower.")]:
        if module.rpartition(".")[2] in ("robust", "messages", "fit_results"):
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(garfield.MissingDependency, match=r"garfield-ml\[flower\]"):
        garfield.flower.Robust  # noqa: B018
