"""LiuBei's worker between gathers: whose model it takes, whose it refuses, and what it counts."""

import numpy as np
import torch
from torch import nn

from garfield import GARS
from garfield.apps.groups import Learning
from garfield.apps.liubei import ScatteredWorker, Scattering
from garfield.apps.settings import Settings
from garfield.launch.simulate import simulate
from garfield.nodes.node import Node, Waits
from garfield.nodes.patience import REPLIES
from garfield.transport.contract import Key
from garfield.transport.simulated import Simulation

SERVERS = [f"server-{i}" for i in range(4)]
RATE = 0.1
INPUTS = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
BATCH = (INPUTS, torch.arange(16) % 2)
START = np.linspace(-0.5, 0.5, 8, dtype=np.float32)


class Rounds:
    """A worker and its servers, whose models a test says step by step."""

    def __init__(self, *, every, n_w=2, f_w=1):
        self.simulation = Simulation()
        self.servers = {name: Node(self.simulation.transport(name)) for name in SERVERS}
        told = Scattering(every, Learning(learning_rate=RATE, momentum=0.0), 0, n_w, f_w)
        self.worker = ScatteredWorker(
            nn.Linear(3, 2), [BATCH], scattering=told, servers=SERVERS, f_ps=1,
            model_gar=GARS["trimmed-mean"], transport=self.simulation.transport("worker-0"),
            clock=lambda: self.simulation.now_s, waits=Waits(1.0, 5.0),
        )  # fmt: skip
        self.honest = START

    def step(self, *, asking=SERVERS, **lies):
        """One step: honest servers have the same model, some others what they are said to.

        As real servers do, those of `asking` ask for the gradient of the step that they are at.
        """
        t = self.worker.step
        for name, node in self.servers.items():
            if name in asking:
                self.worker.outbox.answer(name, Key("gradient", t))
            said = lies.get(name.replace("-", "_"), self.honest)
            if said is not None:
                node.outbox.publish(Key("model", t), np.asarray(said, np.float32))
        self.simulation.spawn(self.worker.follow)
        self.simulation.run()
        at = self.worker._chosen[:8].copy()
        self.honest = self.honest - np.float32(RATE) * self.worker.outbox.own(Key("gradient", t))
        return at


def test_at_a_gather_all_are_joined_and_nobody_is_judged():
    rounds = Rounds(every=2)
    lie = START + 1e6
    np.testing.assert_allclose(rounds.step(server_3=lie), START, atol=1e-6)
    assert (rounds.worker.tested, rounds.worker.rejected) == ({}, {})
    rounds.step()
    honest = rounds.honest
    asked = sum(rounds.worker.tested.values())
    np.testing.assert_allclose(rounds.step(server_3=lie), honest, atol=1e-6)  # step 2: a gather
    assert sum(rounds.worker.tested.values()) == asked


def test_in_between_one_model_is_taken_as_it_is_and_far_ones_are_refused():
    rounds = Rounds(every=50)
    rounds.step()
    for _ in range(12):
        honest = rounds.honest
        np.testing.assert_allclose(rounds.step(server_3=honest + 1e6), honest, atol=1e-6)
    worker = rounds.worker
    assert worker.rejected["server-3"] == worker.tested["server-3"] > 0
    assert worker.event_fields()["filters"]["server-3"] == [worker.tested["server-3"]] * 2
    taken = sum(worker.tested.values()) - sum(worker.rejected.values())
    assert 6 <= taken <= 12  # one a step, or none where all were refused: those steps are gathers


def test_where_a_worker_expects_the_next_model_is_a_step_down_its_own_gradient():
    """With T = 2, 2 workers and 1 liar a model may be twice the last step away: not at once up."""
    rounds = Rounds(every=2)
    rounds.step()
    moved = rounds.honest - START
    uphill = START - 1.5 * moved
    lies = {name.replace("-", "_"): uphill for name in SERVERS[:3]}
    rounds.step(**lies, server_3=rounds.honest)
    assert set(rounds.worker.rejected) <= set(SERVERS[:3])
    assert "server-3" not in rounds.worker.rejected
    assert rounds.worker.tested["server-3"] == 1


def test_who_has_missed_a_step_gathers_first():
    rounds = Rounds(every=50)
    rounds.step()
    rounds.worker.step = 5
    rounds.step()
    assert rounds.worker.tested == {}
    rounds.step()
    assert sum(rounds.worker.tested.values()) == 1


def test_who_is_asked_for_its_last_gradient_by_no_more_than_may_lie_follows_no_single_server():
    """Or a liar with models of steps to come would make it run ahead of all who are honest."""
    rounds = Rounds(every=50)
    rounds.step(asking=["server-3"])
    rounds.worker.outbox.answer("worker-7", Key("gradient", 0))  # it is no server
    rounds.worker.outbox.answer("server-3", Key("gradient", 10**6))
    rounds.step(asking=["server-3"])
    assert rounds.worker.tested == {}
    rounds.step()
    assert sum(rounds.worker.tested.values()) >= 1


def test_the_same_model_of_another_server_is_not_differentiated_again():
    rounds = Rounds(every=50)
    rounds.step()
    passes = []
    before = rounds.worker.differentiate
    rounds.worker.differentiate = lambda: (passes.append(rounds.worker.step), before())
    rounds.worker._coefficients.accept = lambda k, server="": len(passes_of_step()) > 2

    def passes_of_step():
        judged.append(1)
        return judged

    judged = []
    rounds.step()  # two are refused by their coefficient, the third is taken
    assert passes == [1]
    rounds.step()
    assert passes == [1, 2]


def test_another_model_is_judged_by_its_own_gradient():
    """Else the next server's would pass for the last one's, or be taken for it."""
    rounds = Rounds(every=50)
    rounds.step()
    near = {f"server_{i}": rounds.honest + np.float32(1e-4 * i) for i in range(4)}
    judged = []

    def accept(k, server=""):
        judged.append(rounds.worker._judged.copy())
        return len(judged) == 4

    rounds.worker._coefficients.accept = accept
    taken = rounds.step(**near)
    order = [f"server_{i}" for i in range(4)]
    assert sorted(model[0] for model in judged) == sorted(near[name][0] for name in order)
    np.testing.assert_array_equal(taken, judged[-1][:8])


def test_a_silent_server_costs_its_credit_once_and_answers_in_time_bring_it_back():
    rounds = Rounds(every=50)
    worker = rounds.worker
    worker._order = lambda: [
        name for name in SERVERS[::-1] if worker._patience.credit_s(name) > 0
    ]  # the one that is silent first
    rounds.step()
    for _ in range(3):
        rounds.step(server_3=None)
    assert (rounds.simulation.now_s, worker._patience.credit_s("server-3")) == (1.0, 0.0)
    worker._patience.missed("server-2", 0.4, in_full=False)
    for _ in range(REPLIES):
        rounds.step(server_3=None)
    assert worker._patience.credit_s("server-2") == 1.0
    assert rounds.simulation.now_s == 1.0


def test_servers_meet_every_few_steps_and_only_then_agree():
    """A worker tells each server something else: they part, until they gather."""
    settings = Settings.of(
        app="liubei", model="digits_mlp", data="digits", workers=5, byzantine_workers=1, servers=4,
        worker_attack="equivocate", gar="trimmed-mean", steps=3, batch=8, evaluate_every=0,
        simulate=True, f_servers=1,
    )  # fmt: skip
    spread = {}
    for every in (3, 4):
        found = simulate(settings.updated(gather_every=every), lambda event: None)
        models = np.stack([server.read_model() for server in found.values()])
        spread[every] = float(np.ptp(models, axis=0).max())
    assert spread[3] < 1e-6 < spread[4]
