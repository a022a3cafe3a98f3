"""What rules rest on, as real runs hand it to them: the seed, the own row, the last answer."""

from itertools import pairwise

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.gars import Aggregator
from garfield.launch.simulate import simulate

TINY = Settings.of(
    simulate=True, model="digits_mlp", data="digits", workers=7, f_workers=1, steps=3, batch=4,
    evaluate_every=0,
)  # fmt: skip


def model_of(settings):
    servers = simulate(settings, lambda event: None)
    return np.stack([server.read_model() for server in servers.values()])


@pytest.mark.parametrize("gar", ["bucketing(s=2)+median", "dnc(sample=50)"])
@pytest.mark.parametrize("app", ["ssmw", "decentralized"])
def test_the_seed_fixes_what_rules_draw(gar, app):
    settings = TINY.updated(app=app, gar=gar)
    np.testing.assert_array_equal(model_of(settings), model_of(settings))


@pytest.fixture
def joined(monkeypatch):
    """Every call of an aggregator: its rule, its rows, what it was given, and its answer."""
    calls, aggregate = [], Aggregator.aggregate

    def noted(self, rows, **given):
        before = self._last
        found = aggregate(self, rows, **given)
        copies = [np.array(row) for row in rows]
        calls.append((self, copies, given.get("own"), before, np.array(found.vector)))
        return found

    monkeypatch.setattr(Aggregator, "aggregate", noted)
    return calls


def test_peers_that_join_by_monna_trust_their_own_row(joined):
    model_of(TINY.updated(app="decentralized", gar="monna"))
    of_gradients = [call for call in joined if call[0].rule.name == "monna"]
    assert len(of_gradients) == 7 * 3
    for aggregator, rows, own, _, answer in of_gradients:
        place = next(i for i, row in enumerate(rows) if np.array_equal(row, own))
        expected = aggregator.rule.bind(reference=place)(rows, 1)
        np.testing.assert_array_equal(answer, expected)
    places = {
        next(i for i, row in enumerate(call[1]) if np.array_equal(row, call[2]))
        for call in of_gradients
    }
    assert places == set(range(7))  # each its own, and not all the first


@pytest.mark.parametrize("app", ["ssmw", "decentralized"])
def test_centered_clipping_goes_on_from_the_last_answer_of_the_same_node(joined, app):
    model_of(TINY.updated(app=app, gar="centered-clipping"))
    by_node = {}
    for aggregator, _, _, before, answer in joined:
        if aggregator.rule.name == "centered-clipping":
            by_node.setdefault(id(aggregator), []).append((before, answer))
    assert len(by_node) == (1 if app == "ssmw" else 7)
    for rounds in by_node.values():
        assert rounds[0][0] is None
        for (_, last), (before, _) in pairwise(rounds):
            np.testing.assert_array_equal(before, last)
