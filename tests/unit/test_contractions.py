"""Contraction rounds: when a decentralized run makes them, and what they are for."""

import numpy as np
import pytest

from garfield.apps.settings import Settings, from_toml
from garfield.launch.simulate import simulate
from garfield.launch.training import prepare
from garfield.transport.contract import Key

TINY = Settings.of(
    app="decentralized", model="digits_mlp", data="digits", workers=7, byzantine_workers=1,
    worker_attack="equivocate", gar="trimmed-mean", steps=2, batch=8, evaluate_every=0,
    simulate=True,
)  # fmt: skip


def rounds_made(nodes, step):
    """How many rounds every node took part in at that step."""
    counts = {
        sum(node.outbox.own(Key("aggregate", step, k)) is not None for k in range(5))
        for node in nodes.values()
    }
    assert len(counts) == 1
    return counts.pop()


@pytest.mark.parametrize(
    ("partition", "contractions", "expected"),
    [("iid", None, 0), ("dirichlet(alpha=0.5)", None, 1), ("one-class", None, 1),
     ("dirichlet(alpha=0.5)", 0, 0), ("iid", 2, 2), ("one-class", 3, 3)],
)  # fmt: skip
def test_data_that_are_not_iid_are_contracted_unless_something_else_is_said(
    partition, contractions, expected
):
    settings = TINY.updated(partition=partition, contractions=contractions)
    assert prepare(settings).own.contractions == expected
    assert rounds_made(simulate(settings, lambda event: None), step=1) == expected


def test_a_round_brings_the_updates_of_honest_nodes_together():
    """One liar tells everybody another gradient; what nodes step along differs by less."""

    def spread(contractions):
        settings = TINY.updated(contractions=contractions, steps=1)
        nodes = simulate(settings, lambda event: None)
        proposals = [nodes[name].outbox.own(Key("proposal", 1)) for name in settings.honest_servers]
        return np.ptp(np.stack(proposals), axis=0).max()

    assert 0 < spread(1) < spread(0)


def test_what_a_file_says_of_another_application_is_read_as_before():
    old = from_toml({"app": "ssmw", "contractions": 0})
    assert old.check() == Settings.of(app="ssmw")
    assert from_toml({"app": "decentralized", "contractions": 0}).own.contractions == 0
    assert from_toml({"contractions": 0}).updated(app="decentralized").own.contractions == 0
