"""Outboxes, patience, quorums and laggards: the parts of a round, one by one."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

from garfield import (
    GARS,
    ByzantineServer,
    ByzantineWorker,
    ConfigError,
    Deadlock,
    Plan,
    QuorumError,
    Server,
    Worker,
)
from garfield.adapters.adapt import adapt
from garfield.adapters.torch_adapter import TorchAdapter
from garfield.apps import Run
from garfield.apps.crash_tolerant import PrimaryWorker
from garfield.apps.draco import DracoWorker
from garfield.apps.liubei import ScatteredWorker
from garfield.apps.msmw import msmw
from garfield.apps.run import Numbers
from garfield.core.silence import NOT_FINITE, NOT_NEEDED, Reason, Silence
from garfield.nodes.byzantine import LyingOutbox, Notes, parse_plan
from garfield.nodes.node import Account, Behind, Node, Waits
from garfield.nodes.outbox import Outbox
from garfield.nodes.quorum import Quorum
from garfield.nodes.server import ServerArguments
from garfield.nodes.worker import WorkerArguments
from garfield.transport.contract import Gone, Key, NotYet, Ready, Refused
from garfield.transport.simulated import Simulation

ONE = np.ones(4, np.float32)


# -- outbox ---------------------------------------------------------------------------------------


def test_what_was_published_is_a_copy_that_nobody_can_change():
    outbox, vector = Outbox(), ONE.copy()
    outbox.publish(Key("model", 3), vector)
    vector[:] = 9
    answer = outbox.answer("anyone", Key("model", 3))
    np.testing.assert_array_equal(answer.payload, ONE)
    with pytest.raises(ValueError, match="read-only"):
        answer.payload[0] = 5


def test_old_steps_are_gone_and_future_ones_not_yet_there():
    outbox = Outbox()
    for step in range(10):
        outbox.publish(Key("gradient", step), ONE)
    assert isinstance(outbox.answer("a", Key("gradient", 9)), Ready)
    assert outbox.answer("a", Key("gradient", 3)) == Gone(9)
    assert outbox.answer("a", Key("gradient", 1009)) == NotYet()
    assert outbox.answer("a", Key("model", 9)) == NotYet()


def test_publishing_wakes_whoever_watches():
    outbox, woken = Outbox(), []
    outbox.watch(lambda: woken.append(1))
    outbox.publish(Key("model", 0), ONE)
    assert woken == [1]


def test_a_liar_lies_to_others_and_not_to_itself():
    outbox = LyingOutbox(parse_plan("reverse", Plan(n=3, f=1)), "me")
    outbox.publish(Key("gradient", 0), ONE)
    np.testing.assert_array_equal(outbox.answer("you", Key("gradient", 0)).payload, -100 * ONE)
    np.testing.assert_array_equal(outbox.answer("me", Key("gradient", 0)).payload, ONE)


def test_one_that_equivocates_tells_everybody_something_else_and_sticks_to_it():
    outbox = LyingOutbox(parse_plan("equivocate", Plan(n=3, f=1)), "me")
    outbox.publish(Key("model", 0), ONE)
    said = {name: outbox.answer(name, Key("model", 0)).payload.tobytes() for name in "ab"}
    again = {name: outbox.answer(name, Key("model", 0)).payload.tobytes() for name in "ab"}
    assert said == again
    assert said["a"] != said["b"]


def test_one_that_equivocates_about_another_lie_gives_each_asker_a_strength_of_its_own():
    outbox = LyingOutbox(parse_plan("equivocate(attack=reverse(factor=-10))", Plan(n=3, f=1)), "me")
    outbox.publish(Key("model", 0), ONE)
    said = [outbox.answer(name, Key("model", 0)).payload for name in "abcd"]
    strengths = [(1 - vector[0]) / 11 for vector in said]  # own + s (lie - own), from 1 to -10
    assert len(set(strengths)) == 4
    assert all(0.5 <= s <= 1.5 for s in strengths)
    assert all(vector.dtype == np.float32 and np.ptp(vector) == 0 for vector in said)


def test_equivocation_about_silence_keeps_some_in_the_dark_and_not_others():
    outbox = LyingOutbox(parse_plan("equivocate(attack='drop')", Plan(n=3, f=1)), "me")
    outbox.publish(Key("model", 0), ONE)
    answers = [outbox.answer(name, Key("model", 0)) for name in "abcdefgh"]
    heard = [answer for answer in answers if isinstance(answer, Ready)]
    assert 0 < len(heard) < 8
    np.testing.assert_array_equal(heard[0].payload, ONE)


@pytest.mark.parametrize(("lie", "finite"), [("huge", True), ("inf", False), ("nan", False)])
def test_an_equivocation_is_as_finite_as_the_lie_it_is_about(lie, finite):
    outbox = LyingOutbox(parse_plan(f"equivocate(attack={lie})", Plan(n=3, f=1)), "me")
    outbox.publish(Key("model", 0), ONE)
    said = [outbox.answer(name, Key("model", 0)).payload for name in "abcd"]
    assert all(np.isfinite(vector).all() == finite for vector in said)


@pytest.mark.parametrize("behaviour", ["silence", "stall", "drip", "wrong-shape"])
def test_behaviours_are_what_their_names_say(behaviour):
    outbox = LyingOutbox(Plan(behaviour=behaviour), "me")
    for step in (0, 5):
        outbox.publish(Key("model", step), ONE)
    answer, older = (outbox.answer("you", Key("model", step)) for step in (5, 0))
    assert {
        "silence": lambda: isinstance(answer, NotYet) and isinstance(older, NotYet),
        "stall": lambda: answer.pace_bps < 1,
        "drip": lambda: 1 < answer.pace_bps < 1e5,
        "wrong-shape": lambda: len(answer.payload) == 2,
    }[behaviour]()
    assert isinstance(outbox.answer("me", Key("model", 5)), Ready)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stall(for_s=3)", "stall has no parameters, got for_s"),
        ("equivocate(noise=3)", r"Write it like equivocate\(attack=reverse"),
        ("equivocate(attack=revers)", "Did you mean reverse"),
        ("equivocate(attack=stall)", "takes an attack on vectors"),
        ("equivocate(attack=reverse(factr=3))", "Did you mean"),
    ],
)
def test_a_behaviour_with_a_mistake_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_plan(text)


def test_an_unknown_attack_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="Did you mean stall"):
        parse_plan("stal")


# -- account --------------------------------------------------------------------------------------


def test_faults_are_counted_by_peer_and_reason_whatever_the_numbers_in_it():
    account = Account()
    for sent in (4, 8):
        short = Silence(Reason.WRONG_SIZE, f"sent {sent} of 40 bytes")
        account.note({"a": short, "b": NOT_NEEDED}, 0.5)
    account.note({"a": NOT_FINITE, "c": Silence(Reason.REFUSED, "internal: a tale")}, 0.5)
    account.note({"c": Silence(Reason.REFUSED, "internal: another tale")}, 0.5)
    assert account.communication_s == 2.0
    assert account.faults == {
        "a": {Reason.WRONG_SIZE: (2, "sent 8 of 40 bytes"), Reason.NOT_FINITE: (1, "not finite")},
        "c": {Reason.REFUSED: (2, "internal: another tale")},
    }


# -- gathering ------------------------------------------------------------------------------------


def gather(publishers, *, n=5, quorum=5, f=1, needs=3, claims=None, step=3):
    """What one node gathers when some of n peers publish, and others claim to be far ahead."""
    simulation, found = Simulation(), []
    first = Quorum.of_first if quorum != n else None
    told = first(quorum, n, f) if first else Quorum.of_all(n, f, needs=lambda f: needs)
    names = [f"w-{i}" for i in range(n)]
    clock = {"clock": lambda: simulation.now_s, "waits": Waits(1.0, 3.0)}
    for name in names:
        peer = Node(simulation.transport(name), **clock)
        if name in publishers:
            peer.outbox.publish(Key("gradient", step), ONE)
        elif claims and name in claims:
            peer.outbox.publish(Key("gradient", claims[name]), ONE)
    node = Node(simulation.transport("ps"), **clock)

    def program():
        found.append(node.gather(names, Key("gradient", step), length=4, quorum=told))

    simulation.spawn(program)
    simulation.run()
    return found[0], simulation.now_s


def test_a_synchronous_round_keeps_a_place_for_the_silent():
    gathered, waited_s = gather({"w-0", "w-1", "w-3", "w-4"})
    assert gathered.names == ("w-0", "w-1", "w-2", "w-3", "w-4")
    assert [row is None for row in gathered.rows] == [False, False, True, False, False]
    assert gathered.silent["w-2"].reason is Reason.NO_ANSWER
    assert waited_s == 1.0


def test_an_asynchronous_round_takes_the_first_that_come():
    gathered, waited_s = gather({"w-0", "w-1", "w-3", "w-4"}, quorum=4)
    assert gathered.names == ("w-0", "w-1", "w-3", "w-4")
    assert waited_s == 0.0


def test_a_quorum_that_cannot_be_reached_names_the_silent():
    with pytest.raises(QuorumError, match=r"ps got 3 of 5 gradients for step 3.*w-2: no .*w-4: no"):
        gather({"w-0", "w-1", "w-3"})


def test_one_peer_that_claims_a_far_future_moves_nobody():
    gathered, _ = gather({"w-0", "w-1", "w-2", "w-3"}, claims={"w-4": 1003})
    assert gathered.silent == {"w-4": Silence(Reason.GONE, "gone, now at 1003")}


def test_who_hears_from_more_than_may_lie_that_they_are_past_its_step_is_behind():
    claims = {"w-0": 50, "w-1": 51, "w-2": 52, "w-3": 53, "w-4": 10_000}
    with pytest.raises(Behind, match="2 peers are past step 3"):
        gather(set(), claims=claims)


def test_as_many_claims_of_the_future_as_may_lie_are_looked_into_where_nobody_else_is_left():
    with pytest.raises(Behind, match="1 peers are past step 3"):
        gather({"w-0", "w-1", "w-2"}, claims={"w-4": 1003})


def test_as_many_claims_of_the_future_as_may_lie_are_not_believed_while_others_may_be_honest():
    with pytest.raises(QuorumError, match="got 2 of 5 gradients for step 3 and needs 4"):
        gather({"w-0", "w-1"}, claims={"w-4": 1003})


def test_who_finds_nothing_newer_goes_on_waiting_and_stops_in_the_end():
    simulation = Simulation()
    clock = {"clock": lambda: simulation.now_s, "waits": Waits(1.0, 3.0)}
    names = [f"s-{i}" for i in range(5)]
    for name in names[1:4]:
        peer = Node(simulation.transport(name), **clock)
        if name != "s-3":  # it says nothing, and s-4 that it is far ahead
            peer.outbox.publish(Key("proposal", 1), np.ones(8, np.float32))
    liar = Node(simulation.transport("s-4"), **clock)
    liar.outbox.publish(Key("proposal", 1003), np.ones(8, np.float32))
    server = Server(
        linear(), transport=simulation.transport("s-0"), workers=["w-0"], servers=names, f_ps=1,
        model_gar=GARS["median"], **clock,
    )  # fmt: skip
    server.step = 1
    simulation.spawn(lambda: server.get_models(5))
    with pytest.raises(QuorumError, match=r"got 3 of 5 proposals .* needs 4.*s-3: no answer"):
        simulation.run()
    assert (server.step, server.jumps) == (1, 0)


def test_where_all_rows_are_needed_one_silent_peer_stops_the_round():
    with pytest.raises(QuorumError, match=r"got 4 of 5 .* and needs 5.*w-2: no answer"):
        gather({"w-0", "w-1", "w-3", "w-4"}, needs=5)


def test_a_quorum_larger_than_the_peers_is_refused():
    with pytest.raises(ConfigError, match="quorum of 6 is impossible with 5"):
        gather(set(), quorum=6)


def test_a_program_that_waits_outside_the_simulation_is_told_so():
    node = Node(Simulation().transport("ps"))
    with pytest.raises(Deadlock, match=r"inside Simulation\.run"):
        node.gather(["other"], Key("model", 0), length=1, quorum=Quorum.of_first(1, 1, 0))


# -- laggards -------------------------------------------------------------------------------------


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_a_server_that_comes_late_catches_up_with_its_peers():
    simulation = Simulation()
    common = {"clock": lambda: simulation.now_s, "waits": Waits(1.0, 20.0)}
    workers, servers = [f"worker-{i}" for i in range(5)], [f"server-{i}" for i in range(4)]
    rules = {"gar": GARS["average"], "model_gar": GARS["trimmed-mean"]}
    run = Run(30, Numbers(5, 0, 4, 1), *rules.values())
    batch = (torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))
    nodes = {}

    def serve(name):
        module = linear()
        sgd = torch.optim.SGD(module.parameters(), lr=0.1)
        nodes[name] = Server(
            module, sgd, workers=workers, servers=servers, f_ps=1, **common, **rules,
            scheduler=torch.optim.lr_scheduler.StepLR(sgd, 5), transport=simulation.transport(name),
        )  # fmt: skip
        msmw(nodes[name], run)

    def work(name):
        worker = Worker(
            linear(), [batch], transport=simulation.transport(name), servers=servers, f_ps=1,
            model_gar=GARS["trimmed-mean"], **common,
        )  # fmt: skip
        worker.serve(lambda: all(n in nodes and nodes[n].step >= 30 for n in servers))

    for name in servers[:3]:
        simulation.spawn(lambda name=name: serve(name))
    for name in workers:
        simulation.spawn(lambda name=name: work(name))
    simulation.run(until=lambda: "server-0" in nodes and nodes["server-0"].step >= 12)
    first_seen = []
    simulation.spawn(lambda: (serve("server-3"), first_seen.append(1)))
    simulation.run(until=lambda: all(n in nodes and nodes[n].step >= 30 for n in servers))
    vectors = []
    for name in servers:
        vectors.append(np.empty(8, np.float32))
        nodes[name].model.read(vectors[-1])
    np.testing.assert_allclose(vectors[3], vectors[0], atol=1e-6)
    rates = [nodes[name].model.optimizer.param_groups[0]["lr"] for name in servers]
    assert rates[3] == rates[0] < 1e-6  # steps that it has missed count, too


# -- the torch adapter ----------------------------------------------------------------------------


def test_parameters_are_views_of_one_vector_and_any_optimizer_works():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    groups = [{"params": module[0].parameters(), "lr": 0.1}, {"params": module[2].parameters()}]
    optimizer = torch.optim.AdamW([*groups, {"params": module[1].parameters()}], lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    adapter = TorchAdapter(module, optimizer=optimizer, scheduler=schedule)
    assert (adapter.size, adapter.tail) == (12 + 4 + 8 + 8 + 2 - 0, 8)
    gradient = np.empty(adapter.size + adapter.tail, np.float32)
    loss = adapter.gradient((torch.randn(8, 3), torch.randint(0, 2, (8,))), gradient)
    assert loss > 0
    assert np.abs(gradient[: adapter.size]).max() > 0
    before = np.empty_like(gradient)
    adapter.read(before)
    adapter.step(gradient[: adapter.size])
    after = np.empty_like(gradient)
    adapter.read(after)
    assert not np.array_equal(before, after)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    adapter.write(before)
    adapter.read(after)
    np.testing.assert_array_equal(before, after)


def test_variances_that_were_sent_negative_are_not_kept_so():
    adapter = TorchAdapter(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    vector = np.full(adapter.size + adapter.tail, -1.0, np.float32)
    adapter.write(vector)
    assert (adapter.module[1].running_var == 0).all()
    assert (adapter.module[1].running_mean == -1).all()


def test_what_is_no_model_is_refused():
    with pytest.raises(ConfigError, match=r"A dict is not a model.*torch\.nn\.Module"):
        adapt({})
    with pytest.raises(ConfigError, match=r"float64.*call model\.float"):
        adapt(nn.Linear(2, 2).double())
    with pytest.raises(ConfigError, match="no trainable"):
        adapt(nn.ReLU())


def test_liars_who_say_the_same_make_it_up_once():
    looked, notes = [], Notes()

    def spy(key, length):
        looked.append(key)
        return {"worker-2": ONE, "worker-3": 3 * ONE}

    plan = {"n": 4, "f": 2, "spy": spy, "notes": notes}
    liars = [
        LyingOutbox(parse_plan("fall-of-empires", Plan(rank=rank, **plan)), f"worker-{rank}")
        for rank in range(2)
    ]
    for step in range(4):
        for liar in liars:
            liar.publish(Key("gradient", step), (5.0 + step) * ONE)
    said = [liar.answer("server-0", Key("gradient", 3)).payload for liar in liars]
    assert said[0] is said[1]
    np.testing.assert_allclose(said[0], -0.1 * 2 * ONE)
    assert len(notes.agreed) == 2  # no more than the outboxes keep


# -- constructors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "arguments"), [(Worker, WorkerArguments), (Server, ServerArguments)]
)
def test_special_nodes_can_be_given_whatever_their_kind_takes_by_name(node, arguments):
    own, common = (inspect.signature(kind.__init__).parameters.values() for kind in (node, Node))
    named = {p.name for p in (*own, *common) if p.kind is p.KEYWORD_ONLY}
    assert set(arguments.__annotations__) == named


def test_a_byzantine_node_computes_as_the_honest_one_does_and_says_something_else():
    simulation = Simulation()
    plan = parse_plan("reverse(factor=-1)", Plan(n=4, f=1))
    worker = ByzantineWorker(
        linear(), [(torch.ones(4, 3), torch.tensor([0, 1, 0, 0]))], plan=plan,
        transport=simulation.transport("worker-0"), servers=["server-0"],
    )  # fmt: skip
    server = ByzantineServer(
        linear(), transport=simulation.transport("server-0"), workers=["worker-0"], plan=plan
    )
    worker.compute(0, server.read_model())
    server._publish_model()
    for node, asker, kind in ((worker, "server-0", "gradient"), (server, "worker-0", "model")):
        key = Key(kind, 0)
        own = node.outbox.own(key)
        assert own.any()
        np.testing.assert_array_equal(node.outbox.answer(asker, key).payload, -own)
        assert isinstance(node.outbox.answer("stranger", key), Refused)


def test_every_kind_of_worker_has_the_same_loop():
    special = [PrimaryWorker, DracoWorker, ScatteredWorker]
    fixed = ("serve", "follow", "compute", "_publish_gradient")
    assert all(getattr(kind, name) is getattr(Worker, name) for kind in special for name in fixed)


# -- whom the silent wait for ---------------------------------------------------------------------


def test_who_gives_up_says_whom_the_silent_say_to_wait_for():
    """server-1 says nothing to worker-0, which so has nothing to say to server-0."""
    simulation, told = Simulation(), []
    clock = {"clock": lambda: simulation.now_s, "waits": Waits(1.0, 5.0)}
    servers, workers = ("server-0", "server-1"), ("worker-0",)
    rule = {"model_gar": GARS["trimmed-mean"]}
    patient = {**clock, "waits": Waits(1.0, 50.0)}
    batch = torch.ones(1, 3), torch.tensor([0])
    worker = Worker(
        linear(), [batch], transport=simulation.transport("worker-0"), servers=servers, **rule,
        **patient,
    )  # fmt: skip
    honest = Server(
        linear(), transport=simulation.transport("server-0"), workers=workers, servers=servers,
        gar=GARS["average"], **rule, **clock,
    )  # fmt: skip
    Server(
        linear(), transport=simulation.transport("server-1"), workers=workers, servers=servers,
        **clock,
    )  # fmt: skip

    def program():
        with pytest.raises(QuorumError) as shortage:
            honest.get_gradients(0, 1)
        told.append(str(shortage.value))

    simulation.spawn(program)
    simulation.spawn(lambda: worker.serve(lambda: bool(told)))
    simulation.run(until=lambda: bool(told))
    assert "worker-0: no answer in 5 s (says it waits for server-1)" in told[0]
    assert 5.0 <= simulation.now_s <= 5.5  # a tenth more, at the most, to ask
    assert worker.outbox.asked == {"server-0": 0}  # whom it waits for is asked of no step
