"""What one liar among its peers can do to a server or a worker: to buffers, steps and models."""

import numpy as np
import pytest
import torch
from torch import nn

from garfield import GARS, QuorumError, Server, Worker
from garfield.apps.crash_tolerant import PrimaryWorker
from garfield.nodes.node import Node, Waits
from garfield.nodes.worker import OUTLASTS
from garfield.transport.contract import Key
from garfield.transport.simulated import Simulation

FAR = 1e6
BODY, TAIL = 12 + 4 + 8, 8  # the numbers of `normed`
WORKERS, SERVERS = [f"worker-{i}" for i in range(5)], [f"server-{i}" for i in range(5)]


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def vectors(names, seed=0):
    """A vector for each name, the last one's a lie from end to end."""
    rng = np.random.default_rng(seed)
    made = {name: rng.uniform(1, 2, BODY + TAIL).astype(np.float32) for name in names}
    made[names[-1]] = np.full(BODY + TAIL, FAR, np.float32)
    return made


def published(simulation, told, kind, step, *, steps=None):
    """Nodes that have published these vectors, at that step or at steps of their own."""
    for name, vector in told.items():
        node = Node(simulation.transport(name))
        node.outbox.publish(Key(kind, (steps or {}).get(name, step)), vector)


def a_server(simulation, **named):
    module = normed()
    rules = {"gar": GARS["median"], "model_gar": GARS["trimmed-mean"]}
    return Server(
        module, torch.optim.SGD(module.parameters(), lr=0.1), workers=WORKERS, f_w=1,
        transport=simulation.transport("server-0"), clock=lambda: simulation.now_s,
        waits=Waits(1.0, 5.0), **rules, **named,
    )  # fmt: skip


def a_worker(simulation, kind=Worker, servers=SERVERS, **named):
    return kind(
        normed(), [(torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))], servers=servers,
        transport=simulation.transport("worker-0"), clock=lambda: simulation.now_s,
        waits=Waits(1.0, 5.0), **named,
    )  # fmt: skip


def done(simulation, program):
    found = []
    simulation.spawn(lambda: found.append(program()))
    simulation.run()
    return found[0]


def medians(told):
    return np.median([vector[BODY:] for vector in told.values()], axis=0).astype(np.float32)


# -- buffers --------------------------------------------------------------------------------------


def test_a_servers_buffers_are_the_median_of_what_workers_have_of_theirs():
    simulation = Simulation()
    told = vectors(WORKERS)
    published(simulation, told, "gradient", 0)
    server = a_server(simulation)

    def step():
        rows = server.get_gradients(0, 5)
        assert all(len(row) == BODY for row in rows)
        server.update_model(np.zeros(BODY, np.float32))

    done(simulation, step)
    np.testing.assert_array_equal(server.read_model()[BODY:], medians(told))


def test_a_servers_buffers_are_the_median_of_what_servers_propose():
    simulation = Simulation()
    told = vectors(SERVERS)
    published(simulation, {name: told[name] for name in SERVERS[1:]}, "proposal", 0)
    server = a_server(simulation, servers=SERVERS, f_ps=1)
    server.model.write(told["server-0"])

    def join():
        rows = server.get_models(5)
        server.write_model(GARS["trimmed-mean"](rows, f=1))

    done(simulation, join)
    np.testing.assert_array_equal(server.read_model()[BODY:], medians(told))
    assert np.abs(server.read_model()).max() <= 2.0
    np.testing.assert_array_equal(server.own_row("proposal"), told["server-0"][:BODY])


def test_a_workers_buffers_are_the_median_of_its_servers():
    simulation = Simulation()
    told = vectors(SERVERS)
    published(simulation, told, "model", 0)
    worker = a_worker(simulation, f_ps=1, model_gar=GARS["trimmed-mean"])
    parameters, buffers = done(simulation, worker.fetch_model)
    np.testing.assert_array_equal(buffers, medians(told))
    assert 1.0 <= parameters.min() <= parameters.max() <= 2.0
    assert len(parameters) == BODY


def test_a_gradient_is_computed_with_the_buffers_that_servers_agree_on():
    """The tail of what a worker sends is made of the joined buffers, not of its own old ones."""
    simulation = Simulation()
    told = {name: np.full(BODY + TAIL, 5.0, np.float32) for name in SERVERS}
    published(simulation, told, "model", 0)
    worker = a_worker(simulation, f_ps=1, model_gar=GARS["trimmed-mean"])
    done(simulation, worker.follow)
    sent = worker.outbox.own(Key("gradient", 0))
    # running variance: 0.9 · 5 + 0.1 · 0, all inputs being alike
    np.testing.assert_allclose(sent[-4:], 4.5, rtol=1e-5)


# -- steps, and models taken over -----------------------------------------------------------------

AHEAD = {"server-1": 7, "server-2": 7, "server-3": 8, "server-4": 1003}


@pytest.mark.parametrize("claim", [3, 8, 1003])
def test_a_server_that_fell_behind_goes_where_somebody_honest_is_with_models_inside_theirs(claim):
    simulation = Simulation()
    told = vectors(SERVERS)
    steps = {**AHEAD, "server-4": claim}
    published(simulation, {n: told[n] for n in SERVERS[1:]}, "model", 0, steps=steps)
    server = a_server(simulation, servers=SERVERS, f_ps=1)
    server.step = 2
    done(simulation, lambda: server.catch_up(beyond=2))
    assert server.step == 7  # the oldest of the newest
    assert server.jumps == 1
    model = server.read_model()
    assert 1.0 <= model.min() <= model.max() <= 2.0  # buffers, too; and nothing of its own
    assert not np.array_equal(model, told["server-1"])  # a join, not somebody's row


def test_without_a_rule_models_taken_over_are_joined_by_their_median_buffers_too():
    simulation = Simulation()
    told = vectors(SERVERS)
    published(simulation, {n: told[n] for n in SERVERS[1:]}, "model", 7)
    server = a_server(simulation, servers=SERVERS, f_ps=1)
    server.model_gar = None
    done(simulation, lambda: server.catch_up(beyond=2))
    expected = np.median([told[name] for name in SERVERS[1:]], axis=0)
    np.testing.assert_allclose(server.read_model(), expected, rtol=1e-6)


def test_a_server_takes_over_no_model_where_liars_could_be_half_of_those_it_hears():
    simulation = Simulation()
    told = vectors(SERVERS[:3])
    published(simulation, {n: told[n] for n in SERVERS[1:3]}, "model", 7)
    server = a_server(simulation, servers=SERVERS[:3], f_ps=1)
    server.step = 2
    with pytest.raises(QuorumError, match=r"it must hear 3 of them, and there are 2"):
        done(simulation, lambda: server.catch_up(beyond=2))
    assert server.step == 2


@pytest.mark.parametrize(("claim", "expected"), [(3, 3), (1003, 3), (2, 3)])
def test_a_worker_goes_where_more_than_may_lie_say_they_are(claim, expected):
    simulation = Simulation()
    told = vectors(SERVERS)
    steps = dict.fromkeys(SERVERS, 3) | {"server-4": claim}
    published(simulation, told, "model", 3, steps=steps)
    worker = a_worker(simulation, f_ps=1, model_gar=GARS["trimmed-mean"])
    parameters, _ = done(simulation, worker.fetch_model)
    assert worker.step == expected
    assert 1.0 <= parameters.min() <= parameters.max() <= 2.0


def test_one_server_that_claims_a_far_future_moves_no_worker():
    simulation = Simulation()
    told = vectors(SERVERS)
    published(simulation, told, "model", 3, steps={"server-4": 1003})
    worker = a_worker(simulation, f_ps=1, model_gar=GARS["trimmed-mean"])
    worker.step = 3
    parameters, _ = done(simulation, worker.fetch_model)
    assert worker.step == 3
    assert 1.0 <= parameters.min() <= parameters.max() <= 2.0


# -- a primary ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "alive", "after"), [(2, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 0), (1, 1, 1)]
)
def test_when_its_server_dies_a_worker_follows_the_next_and_after_the_last_the_first(
    before, alive, after
):
    """The last server may be the one that dies, when the first is back."""
    simulation = Simulation()
    names = SERVERS[:3]
    for name in names:
        if name != names[alive]:
            simulation.transport(name)  # there, and silent
    mine = np.full(BODY + TAIL, 3.0, np.float32)
    published(simulation, {names[alive]: mine}, "model", 0)
    worker = a_worker(simulation, PrimaryWorker, servers=names)
    worker.primary = before
    parameters, buffers = done(simulation, worker.fetch_model)
    assert worker.primary == after
    assert set(parameters) == set(buffers) == {3.0}


def test_a_worker_without_any_server_gives_up_in_time():
    simulation = Simulation()
    for name in SERVERS[:2]:
        simulation.transport(name)
    worker = a_worker(simulation, PrimaryWorker, servers=SERVERS[:2])
    with pytest.raises(QuorumError, match="got 0 of 1 models"):
        done(simulation, worker.fetch_model)
    assert OUTLASTS * 5.0 <= simulation.now_s <= OUTLASTS * 5.0 + 1.0
