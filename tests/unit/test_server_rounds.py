"""A server's rounds one by one: who may ask for what, which rows are whose, and for how long."""

from math import inf

import numpy as np
import pytest
import torch
from torch import nn

from garfield import GARS, ConfigError, DivergedError, QuorumError, Server, Worker
from garfield.nodes.node import Node, Waits
from garfield.nodes.server import contract
from garfield.transport.contract import Key, Ready, Refused
from garfield.transport.simulated import Simulation

WORKERS, SERVERS = [f"worker-{i}" for i in range(4)], [f"server-{i}" for i in range(4)]
SIZE = 8


def a_server(simulation, name="server-0", *, servers=SERVERS, f_ps=1, module=None, **named):
    torch.manual_seed(0)
    module = module or nn.Linear(3, 2)
    return Server(
        module, torch.optim.SGD(module.parameters(), lr=0.5), workers=WORKERS, servers=servers,
        f_ps=f_ps, model_gar=GARS["trimmed-mean"], transport=simulation.transport(name),
        clock=lambda: simulation.now_s, waits=Waits(1.0, 5.0), **named,
    )  # fmt: skip


def a_peer(simulation, name, **published):
    """A node that has published some vectors, by kind: a number everywhere, and a step."""
    node = Node(simulation.transport(name))
    for kind, told in published.items():
        for step, value in told.items():
            node.outbox.publish(Key(kind, step), np.full(SIZE, value, np.float32))
    return node


def done(simulation, program):
    found = []
    simulation.spawn(lambda: found.append(program()))
    simulation.run()
    return found[0]


# -- who may ask whom -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asker", "kind", "answered"),
    [("worker-1", "model", True), ("worker-1", "proposal", False), ("worker-1", "aggregate", False),
     ("server-1", "model", True), ("server-1", "proposal", True), ("server-1", "aggregate", True),
     ("stranger", "model", False), ("stranger", "proposal", False)],
)  # fmt: skip
def test_a_server_tells_workers_its_models_servers_all_and_strangers_nothing(asker, kind, answered):
    server = a_server(Simulation())
    server.outbox.publish(Key(kind, 0), np.ones(SIZE, np.float32))
    answer = server.outbox.answer(asker, Key(kind, 0))
    assert isinstance(answer, Ready if answered else Refused)


@pytest.mark.parametrize(("asker", "answered"), [("server-0", True), ("worker-1", False)])
def test_a_worker_tells_its_servers_alone(asker, answered):
    worker = Worker(
        nn.Linear(3, 2), [(0, 0)], transport=Simulation().transport("worker-0"), servers=SERVERS
    )
    worker.outbox.publish(Key("gradient", 0), np.ones(SIZE, np.float32))
    answer = worker.outbox.answer(asker, Key("gradient", 0))
    assert isinstance(answer, Ready if answered else Refused)


# -- rows, and how long they live -----------------------------------------------------------------


def test_rows_are_gone_at_the_next_call_of_their_kind_and_no_earlier():
    simulation = Simulation()
    for name in SERVERS[1:]:
        a_peer(simulation, name, proposal={1: 3.0})
    for name in WORKERS:
        a_peer(simulation, name, gradient={0: 1.0, 1: 2.0})
    server = a_server(simulation)

    def round_():
        gradients = server.get_gradients(0, 4)
        assert [row[0] for row in gradients] == [1.0] * 4
        server.update_model(np.ones(SIZE, np.float32))
        models = server.get_models(4)
        assert len(gradients) == 4
        assert [row[0] for row in models[1:]] == [3.0] * 3
        server.write_model(models[1])
        again = server.get_gradients(1, 4)
        assert gradients == []
        assert len(models) == 4
        assert [row[0] for row in again] == [2.0] * 4
        server.step += 1  # where nobody else is
        with pytest.raises(QuorumError):
            server.get_models(4)
        assert models == []

    done(simulation, round_)


def test_a_models_rows_are_the_proposals_of_all_its_own_included():
    simulation = Simulation()
    for i, name in enumerate(SERVERS[1:], 1):
        a_peer(simulation, name, proposal={1: float(i)}, model={1: 77.0})
    server = a_server(simulation)
    server.write_model(np.full(SIZE, 2.0))
    server.update_model(np.full(SIZE, 4.0))  # 2 - 0.5 · 4
    rows = done(simulation, lambda: server.get_models(4))
    assert [row[0] for row in rows] == [0.0, 1.0, 2.0, 3.0]
    assert server.own_row("proposal").tolist() == [0.0] * SIZE


# -- contraction ----------------------------------------------------------------------------------


def test_contraction_rounds_are_numbered_from_0_and_join_what_everybody_has_by_then():
    simulation = Simulation()
    joined = {}

    def program(name, start):
        server = a_server(simulation, name)
        gradient = np.full(SIZE, start, np.float32)
        rule = GARS["trimmed-mean"]
        joined[name] = contract(server, gradient, rule, rounds=2, q=4, f=1), server

    starts = dict(zip(SERVERS, (0.0, 1.0, 5.0, 1000.0), strict=True))
    for name, start in starts.items():
        simulation.spawn(lambda name=name, start=start: program(name, start))
    simulation.run()
    for name, (gradient, server) in joined.items():
        first, second, third = (server.outbox.own(Key("aggregate", 0, k)) for k in range(3))
        assert first[0] == starts[name]
        assert second[0] == 3.0  # of 0, 1, 5, 1000 the middle ones' mean
        assert third is None
        assert gradient[0] == 3.0
        assert server.own_row("aggregate").tolist() == second.tolist()


def test_without_rounds_a_gradient_stays_as_it_is():
    server = a_server(Simulation())
    gradient = np.arange(SIZE, dtype=np.float32)
    assert contract(server, gradient, GARS["median"], rounds=0, q=4, f=1) is gradient


def test_an_aggregate_must_be_there_before_others_are_asked():
    with pytest.raises(ConfigError, match="Set latest_aggr_grad"):
        a_server(Simulation()).get_aggr_grads(4)


def test_rounds_begin_anew_with_every_step():
    simulation = Simulation()
    for name in WORKERS:
        a_peer(simulation, name, gradient={0: 1.0, 1: 1.0})
    server = a_server(simulation, servers=["server-0"], f_ps=0)

    def two_steps():
        for t in range(2):
            server.get_gradients(t, 4)
            contract(server, np.ones(SIZE), GARS["average"], rounds=1, q=1, f=0)
            server.update_model(np.ones(SIZE))

    done(simulation, two_steps)
    assert server.outbox.own(Key("aggregate", 1, 0)) is not None
    assert server.outbox.own(Key("aggregate", 1, 1)) is None


# -- what is newest -------------------------------------------------------------------------------


def newest(steps, *, count, f, beyond=2):
    """What a node takes over from peers who are at these steps; a row holds its sender's."""
    simulation = Simulation()
    for name, step in steps.items():
        a_peer(simulation, name, model={step: float(step)})
    node = Node(simulation.transport("me"), clock=lambda: simulation.now_s, waits=Waits(1.0, 5.0))
    peers = list(steps)
    found = done(
        simulation,
        lambda: node.newest(peers, "model", length=SIZE, beyond=beyond, count=count, f=f),
    )
    return found.step, sorted(row[0] for row in found.rows)


def test_it_goes_to_the_oldest_of_the_newest():
    assert newest({"a": 7, "b": 9, "c": 8}, count=3, f=0) == (7, [7.0, 8.0, 9.0])
    assert newest({"a": 7, "b": 9, "c": 8}, count=2, f=0) == (8, [8.0, 9.0])
    assert newest({"a": 7, "b": 9, "c": 8}, count=1, f=1) == (7, [7.0, 8.0, 9.0])
    assert newest({"a": 7, "b": 900, "c": 8, "d": 800, "e": 7}, count=5, f=2)[0] == 7
    assert newest({"a": 3, "b": 9, "c": 8}, count=3, f=0) == (3, [3.0, 8.0, 9.0])  # never back


@pytest.mark.parametrize("stale", [0, 1, 2])
def test_a_claim_that_is_not_beyond_what_was_asked_counts_for_nothing(stale):
    steps = {"a": stale, "b": 7, "c": 3, "d": 8}
    assert newest(steps, count=3, f=1) == (3, [3.0, 7.0, 8.0])


def test_of_two_claims_one_liar_could_own_either():
    with pytest.raises(QuorumError, match=r"it must hear 3 of them, and there are 2"):
        newest({"a": 7, "b": 9}, count=1, f=1)
    assert newest({"a": 7}, count=1, f=0) == (7, [7.0])


def test_too_few_who_are_beyond_are_named():
    with pytest.raises(QuorumError, match=r"me got 1 of 3 newest models and needs 3.*a: .*c: "):
        newest({"a": 2, "b": 7, "c": 1}, count=3, f=1)


# -- divergence and silence -----------------------------------------------------------------------


@pytest.mark.parametrize(("broken", "f_w", "diverged"), [(1, 1, False), (2, 1, True), (1, 0, True)])
def test_a_model_has_diverged_if_more_than_may_lie_have_no_finite_gradient(broken, f_w, diverged):
    simulation = Simulation()
    for i, name in enumerate(WORKERS):
        node = Node(simulation.transport(name))
        if i < broken:
            node.outbox.publish(Key("gradient", 0), np.full(SIZE, np.nan, np.float32))
        elif i < 2:
            node.outbox.publish(Key("gradient", 0), np.ones(SIZE, np.float32))
    server = a_server(simulation, servers=["server-0"], f_ps=0, f_w=f_w)
    error = DivergedError if diverged else QuorumError
    with pytest.raises(error) as told:
        done(simulation, lambda: server.get_gradients(0, 4))
    assert isinstance(told.value, DivergedError) == diverged


def test_a_model_that_is_not_finite_is_not_published():
    server = a_server(Simulation())
    server.write_model(np.full(SIZE, np.inf))
    with pytest.raises(DivergedError, match="not finite at step 0"):
        server.get_models(4)
    assert server.outbox.own(Key("proposal", 0)) is None


def test_steps_go_on_to_the_last_which_is_published_for_those_behind():
    server = a_server(Simulation())
    seen = []
    for t in server.steps(3):
        seen.append(t)
        server.update_model(np.zeros(SIZE))
        if t == 0:
            server.step = 2  # a jump: what it missed is not done again
    assert seen == [0, 2]
    assert server.outbox.own(Key("model", 3)) is not None


def test_a_server_that_catches_up_takes_the_steps_of_its_schedule_along():
    simulation = Simulation()
    for name in SERVERS[1:]:
        a_peer(simulation, name, model={5: 4.0})
    server = a_server(simulation)
    skipped = []
    server.model.skip = skipped.append
    server.step = 2
    done(simulation, lambda: server.catch_up(beyond=2))
    assert (server.step, server.jumps, skipped) == (5, 1, [3])
    assert server.read_model().tolist() == [4.0] * SIZE


def test_who_has_caught_up_with_the_last_model_waits_for_no_gradients_and_keeps_its_tail():
    simulation = Simulation()
    length = 3 + 6 + 4 + 3 * 2  # two layers, batch norm between, and its tail: mean, variance
    for name in SERVERS[1:]:
        node = Node(simulation.transport(name))
        node.outbox.publish(Key("model", 2), np.full(length, 4.0, np.float32))
        node.outbox.publish(Key("proposal", 2), np.full(length, 4.0, np.float32))
    for name in WORKERS[:2]:  # more than may lie; the others have ended
        node = Node(simulation.transport(name))
        for step in (2, 3, 4):
            node.outbox.publish(Key("gradient", step), np.ones(length, np.float32))
    module = nn.Sequential(nn.Linear(1, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(1, 2))
    server = a_server(simulation, module=module, f_w=1)
    server.step = 1
    seen = []

    def last_steps():
        for t in server.steps(2):
            rows = server.get_gradients(t, 4)
            seen.append((t, len(rows), simulation.now_s))
            server.update_model(GARS["average"](gradients=rows, f=0))
            server.write_model(GARS["trimmed-mean"](gradients=server.get_models(4), f=1))

    done(simulation, last_steps)
    assert seen == [(1, 4, 0.0)]
    assert (server.step, server.jumps) == (2, 1)
    assert server.read_model().tolist() == [4.0] * length


def test_a_lone_server_cannot_catch_up():
    server = a_server(Simulation(), servers=["server-0"], f_ps=0)
    with pytest.raises(QuorumError, match="no other server is left"):
        server.catch_up(beyond=0)


def test_in_doubt_a_server_with_too_few_others_stays_where_it_is_and_looks_no_more():
    server = a_server(Simulation(), servers=SERVERS[:2])
    server._doubt.since = 0.0
    assert not server.catch_up(beyond=0)
    assert (server.jumps, server._doubt.time_outs) == (0, inf)


def test_a_step_never_falls_though_it_may_not_go_on_either():
    simulation = Simulation()
    for name in SERVERS[1:]:
        a_peer(simulation, name, model={7: 4.0})
    server = a_server(simulation)
    server.step = 5
    assert done(simulation, lambda: server.catch_up(beyond=5, at_most=2))
    assert (server.step, server.read_model()[0]) == (5, 4.0)


def behind(simulation, rule, *, n, silent=()):
    """A server at step 2 whose n - 1 peers are at step 5, each with a model of its own."""
    names = [f"server-{i}" for i in range(n)]
    rows = np.random.default_rng(0).uniform(1, 2, (n - 1, SIZE)).astype(np.float32)
    for name, row in zip(names[1:], rows, strict=True):
        node = Node(simulation.transport(name))
        if name not in silent:
            node.outbox.publish(Key("model", 5), row)
    server = a_server(simulation, servers=names)
    server.model_gar, server.step = rule, 2
    return server, rows


def test_models_taken_over_are_joined_by_the_runs_rule():
    simulation = Simulation()
    server, rows = behind(simulation, GARS["krum"], n=6)
    done(simulation, lambda: server.catch_up(beyond=2))
    found = server.read_model()
    assert [row for row in rows if np.array_equal(row, found)]  # as Krum does, and no median


def test_without_a_rule_they_are_the_median_of_all_others():
    simulation = Simulation()
    server, rows = behind(simulation, None, n=4)
    done(simulation, lambda: server.catch_up(beyond=2))
    np.testing.assert_array_equal(server.read_model(), np.median(rows, axis=0))
    simulation = Simulation()
    server, _ = behind(simulation, None, n=4, silent={"server-2"})
    with pytest.raises(QuorumError, match="got 2 of 3 newest models and needs 3"):
        done(simulation, lambda: server.catch_up(beyond=2))


def test_with_a_rule_as_many_others_are_enough_as_it_needs():
    simulation = Simulation()
    server, rows = behind(simulation, GARS["trimmed-mean"], n=5, silent={"server-2"})
    done(simulation, lambda: server.catch_up(beyond=2))
    np.testing.assert_allclose(server.read_model(), np.median(rows[[0, 2, 3]], axis=0), rtol=1e-6)


def test_a_server_without_rules_waits_for_all_servers_and_with_one_for_as_many_as_it_needs():
    for rule, enough in ((None, False), (GARS["trimmed-mean"], True)):
        simulation = Simulation()
        for name in SERVERS[1:3]:
            a_peer(simulation, name, proposal={0: 1.0})
        a_peer(simulation, SERVERS[3])
        server = a_server(simulation)
        server.model_gar = rule
        if enough:
            rows = done(simulation, lambda server=server: server.get_models(4))
            assert [row is None for row in rows] == [False, False, False, True]
        else:
            with pytest.raises(QuorumError, match="needs 4"):
                done(simulation, lambda server=server: server.get_models(4))


def test_only_a_trusted_server_goes_on_with_fewer_than_the_rule_needs_for_all_faults():
    for servers, f_ps in ((["server-0"], 0), (SERVERS, 1)):
        simulation = Simulation()
        for name in WORKERS[:3]:
            a_peer(simulation, name, gradient={0: 1.0})
        a_peer(simulation, WORKERS[3])
        server = a_server(simulation, servers=servers, f_ps=f_ps, f_w=1)
        server.gar = GARS["krum"]  # needs five for one fault; three bear none
        if f_ps == 0:
            rows = done(simulation, lambda server=server: server.get_gradients(0, 4))
            assert sum(row is not None for row in rows) == 3
        else:
            with pytest.raises(QuorumError, match="needs 4"):
                done(simulation, lambda server=server: server.get_gradients(0, 4))


def test_servers_half_of_whom_are_a_step_ahead_do_not_wait_for_each_other():
    """Server 2 waits for a third proposal of step 4, servers 0 and 1 for its forgotten one of 3.

    Server 3 is silent, so there are not enough ahead to catch up with either.
    """
    simulation = Simulation()
    a_peer(simulation, "server-1", proposal={3: 1.0})
    a_peer(simulation, "server-2", model={3: 7.0}, proposal={4: 8.0})
    a_peer(simulation, "server-3")
    server = a_server(simulation)
    server.step = 3
    rows = done(simulation, lambda: server.get_models(4))
    assert [None if row is None else row[0] for row in rows][1:] == [1.0, 7.0, None]
    assert (server.step, server.jumps) == (3, 0)


def test_a_server_whose_peers_have_joined_without_it_goes_on_from_what_they_made():
    simulation = Simulation()
    for name in SERVERS[1:]:
        peer = a_peer(simulation, name, model={5: 7.0})
        peer.outbox.publish(Key("aggregate", 6), np.zeros(SIZE, np.float32))
    server = a_server(simulation)
    server.step = 3
    rows = done(simulation, lambda: server.get_models(4))
    assert (server.step, server.jumps) == (5, 1)
    assert [row.tolist() for row in rows] == [[7.0] * SIZE] * 4
    assert server.read_model().tolist() == [7.0] * SIZE


def test_a_step_that_is_asked_for_may_be_later_than_the_servers_own_never_earlier():
    simulation = Simulation()
    for name in WORKERS:
        a_peer(simulation, name, gradient={1: 1.0, 2: 2.0})
    server = a_server(simulation)

    def ask():
        return [server.get_gradients(t, 4)[0][0] for t in (2, 1)]

    assert done(simulation, ask) == [2.0, 2.0]
    assert server.step == 2
