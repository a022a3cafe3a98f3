"""Who lies in a run, what its settings let the liars know, and what they make of it."""

from dataclasses import replace

import numpy as np
import pytest

from garfield import Plan
from garfield.apps.settings import Settings
from garfield.launch.adversary import HEAD_START_S, Adversary
from garfield.launch.simulate import simulate
from garfield.nodes.byzantine import LyingOutbox, Notes, parse_plan
from garfield.nodes.knowledge import likely_rows
from garfield.nodes.outbox import Outbox
from garfield.nodes.plan import drawn
from garfield.nodes.spied import SPIED, is_spied, plain, spied
from garfield.transport.contract import Key, Ready
from garfield.transport.simulated import Simulation

ONE = np.ones(4, np.float32)
SMALL = {"model": "digits_mlp", "data": "digits", "batch": 8, "steps": 3, "evaluate_every": 0}
MSMW = {**SMALL, "app": "msmw", "workers": 7, "byzantine_workers": 1, "servers": 4,
        "byzantine_servers": 1}  # fmt: skip


def adversary_of(**settings):
    return Adversary(Settings.of(**settings).check())


def outbox_of(name, **settings):
    return adversary_of(**settings).outbox(name, Simulation().transport(name))


# -- the experiment's channel ---------------------------------------------------------------------


def test_to_each_kind_there_is_a_spied_one_of_the_same_numbers():
    for name in ("model", "gradient", "proposal", "aggregate", "coded"):
        key = Key(name, 3, 1)
        assert spied(key).kind == SPIED[name].name == f"spied-{name}"
        assert is_spied(spied(key))
        assert not is_spied(key)
        assert plain(spied(key)) == key
        assert spied(key).dtype == key.dtype
        assert not SPIED[name].lossy


def test_an_outbox_answers_spies_with_the_truth_and_nobody_else():
    outbox = Outbox()
    outbox.publish(Key("gradient", 0), ONE)
    asked = spied(Key("gradient", 0))
    assert not isinstance(outbox.answer("worker-6", asked), Ready)
    outbox.spied_by = frozenset({"worker-6"})
    np.testing.assert_array_equal(outbox.answer("worker-6", asked).payload, ONE)
    assert not isinstance(outbox.answer("worker-5", asked), Ready)


@pytest.mark.parametrize(
    ("attacks", "worker", "server"),
    [
        ({}, set(), set()),
        ({"worker_attack": "reverse", "server_attack": "random"}, set(), set()),
        ({"worker_attack": "little-is-enough"}, {"worker-6"}, set()),
        ({"worker_attack": "equivocate(attack=mimic), last"}, {"worker-6"}, set()),
        ({"server_attack": "little-is-enough"}, {"server-3"}, {"server-3"}),
        (
            {"worker_attack": "mimic", "server_attack": "mimic"},
            {"worker-6", "server-3"},
            {"server-3"},
        ),
    ],
)
def test_only_a_declared_attack_that_knows_all_opens_the_channel(attacks, worker, server):
    adversary = adversary_of(**MSMW, **attacks)
    assert adversary.spies_on("worker-0") == worker
    assert adversary.spies_on("server-0") == server


def test_without_a_declared_attack_a_lying_node_cannot_read_an_honest_gradient():
    for attacks in ({}, {"worker_attack": "reverse"}):
        outbox = outbox_of("worker-0", **MSMW, **attacks)
        outbox.publish(Key("gradient", 0), ONE)
        for liar in ("worker-6", "server-3"):
            assert not isinstance(outbox.answer(liar, spied(Key("gradient", 0))), Ready)


def test_where_liars_are_redrawn_each_of_the_workers_may_be_one():
    settings = {**SMALL, "workers": 7, "byzantine_workers": 2}
    outbox = outbox_of("worker-0", **settings, worker_attack="mimic, redrawn")
    assert isinstance(outbox, LyingOutbox)
    assert outbox.spied_by == {f"worker-{i}" for i in range(7)}
    assert outbox.plan.f == 2
    assert outbox_of("worker-0", **settings, worker_attack="reverse, redrawn").spied_by == set()


# -- what liars make of it ------------------------------------------------------------------------


def lies_to(servers, liar, asker, key):
    return np.asarray(servers[liar].outbox.answer(asker, key).payload, np.float64)


@pytest.mark.parametrize("attack", ["little-is-enough(z=2)", "min-max", "mimic", "pull-apart"])
def test_servers_that_agree_to_the_bit_are_lied_to_within_the_gradients_spread(attack):
    settings = Settings.of(**MSMW, server_attack=attack, simulate=True, momentum=0.0)
    servers = simulate(settings, lambda event: None)
    key = Key("proposal", 3)
    honest = [np.asarray(servers[f"server-{i}"].outbox.own(key)) for i in range(3)]
    assert all(np.array_equal(honest[0], other) for other in honest)  # no spread to hide in
    off = np.abs(lies_to(servers, "server-3", "server-0", key) - honest[0])
    assert 0 < off.max() < 0.5  # and yet a lie, of the size of a step along one gradient


def test_a_lying_servers_spread_is_that_of_the_gradients_times_the_learning_rate():
    rng = np.random.default_rng(0)
    gradients = rng.normal(5, 2, (6, 4)).astype(np.float32)
    looked = []

    def spread(key, length):
        looked.append(key)
        return {f"worker-{i}": row for i, row in enumerate(gradients)}

    known = Plan(
        n=4, f=1, spy=lambda key, length: dict.fromkeys("abc", 3 * ONE),
        gradients=spread, rate=lambda step: 0.1 * step,
    )  # fmt: skip
    outbox = LyingOutbox(parse_plan("little-is-enough(z=2)", known), "d")
    outbox.publish(Key("proposal", 5), 3 * ONE)
    lie = outbox.answer("a", Key("proposal", 5)).payload
    np.testing.assert_allclose(lie, 3 + 2 * 0.4 * gradients.std(axis=0), rtol=1e-5)
    outbox.publish(Key("model", 5), 3 * ONE)
    np.testing.assert_allclose(outbox.answer("a", Key("model", 5)).payload, lie)
    assert looked == [Key("gradient", 4)]  # looked at once for both
    outbox.publish(Key("aggregate", 5), 3 * ONE)
    lie = outbox.answer("a", Key("aggregate", 5)).payload
    np.testing.assert_allclose(lie, 3 + 2 * gradients.std(axis=0), rtol=1e-5)


def test_servers_that_differ_more_than_that_are_lied_to_by_their_own_spread():
    models = {"a": ONE, "b": 5 * ONE, "c": 9 * ONE}
    known = Plan(
        n=4, f=1, spy=lambda key, length: models, rate=lambda step: 0.1,
        gradients=lambda key, length: {"worker-0": ONE, "worker-1": 2 * ONE},
    )  # fmt: skip
    outbox = LyingOutbox(parse_plan("little-is-enough(z=1)", known), "d")
    outbox.publish(Key("proposal", 5), ONE)
    lie = outbox.answer("a", Key("proposal", 5)).payload
    np.testing.assert_allclose(lie, 5 + np.std([1, 5, 9]), rtol=1e-6)


def test_liars_of_one_process_remember_together():
    """The victim is learnt by whoever looks first, and all keep to it."""
    rounds = np.random.default_rng(0).standard_normal((12, 3, 4)).astype(np.float32)
    notes = Notes()

    def spy(key, length):
        return dict(zip("abc", rounds[key.step], strict=True))

    liars = [
        LyingOutbox(parse_plan("mimic(learn=3)", Plan(n=5, f=2, rank=r, spy=spy, notes=notes)), "x")
        for r in range(2)
    ]
    said = []
    for step in range(12):
        key = Key("gradient", step)
        for liar in liars[:: 1 if step % 2 else -1]:
            liar.publish(key, ONE)
        a, b = (liar.answer("server-0", key).payload for liar in liars)
        np.testing.assert_array_equal(a, b)
        said.append(int(np.flatnonzero((rounds[step] == a).all(axis=1))[0]))
    assert len(set(said[3:])) == 1
    assert notes.memory["gradient"]["rounds"] == 3


def test_two_faces_are_shown_to_every_other_asker():
    spy = {"a": ONE, "b": 5 * ONE}
    known = Plan(n=4, f=1, spy=lambda key, length: spy, askers=("server-0", "server-1", "server-2"))
    outbox = LyingOutbox(parse_plan("pull-apart", known), "d")
    for kind, high in (("gradient", 1), ("proposal", 0)):  # down along gradients is up
        outbox.publish(Key(kind, 0), ONE)
        told = [outbox.answer(f"server-{i}", Key(kind, 0)).payload[0] for i in range(3)]
        assert told == [5 if i % 2 == high else 1 for i in range(3)]


# -- redrawn --------------------------------------------------------------------------------------


def test_draco_undoes_the_lies_of_liars_who_are_others_each_step():
    base = {**SMALL, "app": "draco", "workers": 9, "f_workers": 1, "simulate": True}
    honest = simulate(Settings.of(**base), lambda event: None)["server-0"].read_model()
    events = []
    settings = Settings.of(**base, byzantine_workers=1, worker_attack="reverse, redrawn")
    attacked = simulate(settings, events.append)["server-0"].read_model()
    np.testing.assert_array_equal(attacked, honest)
    lying = [set(drawn(settings.worker_names, 1, 0, step)) for step in range(3)]
    assert [set(event["set_aside"]) for event in events if event["event"] == "step"] == lying
    assert len(set.union(*lying)) > 1


# -- asynchronous ---------------------------------------------------------------------------------


def test_liars_of_an_asynchronous_simulation_have_seen_all_that_the_honest_say():
    settings = Settings.of(
        **SMALL, app="guanyu", workers=6, byzantine_workers=1, servers=6, byzantine_servers=1,
        worker_attack="little-is-enough", server_attack="little-is-enough", simulate=True,
    )  # fmt: skip
    servers = simulate(settings, lambda event: None)
    seen = servers["server-5"].outbox.plan.notes.seen["proposal"]
    assert seen.names == tuple(f"server-{i}" for i in range(5))
    said = [servers[name].outbox.own(Key("proposal", 3)) for name in seen.names]
    np.testing.assert_array_equal(seen.rows, said)


def test_an_asynchronous_network_is_on_the_liars_side_and_a_synchronous_one_on_nobodys():
    asynchronous = adversary_of(**MSMW, asynchronous=True, worker_attack="mimic")
    key = Key("gradient", 0)
    assert asynchronous.delay_s("server-0", "worker-0", key) == HEAD_START_S
    for asker, peer in (("server-0", "worker-6"), ("worker-6", "server-0"), ("a", "a")):
        assert asynchronous.delay_s(asker, peer, key) == 0
    assert asynchronous.delay_s("server-0", "worker-0", spied(key)) == 0
    assert adversary_of(**MSMW, worker_attack="mimic").delay_s("server-0", "worker-0", key) == 0


def test_where_liars_are_redrawn_the_network_sides_with_those_of_the_step():
    settings = {**SMALL, "workers": 7, "byzantine_workers": 2, "asynchronous": True}
    adversary = adversary_of(**settings, gar="median", worker_attack="mimic, redrawn")
    for step in range(10):
        lying = drawn(adversary.settings.worker_names, 2, 0, step)
        for name in adversary.settings.worker_names:
            delay_s = adversary.delay_s("server-0", name, Key("gradient", step))
            assert (delay_s == 0) == (name in lying)


def test_only_what_servers_say_is_made_up_from_gradients_and_only_where_there_were_some():
    known = Plan(
        n=4, f=1, rate=lambda step: 0.1,
        gradients=lambda key, length: {"worker-0": ONE, "worker-1": 2 * ONE},
    )  # fmt: skip
    honest = np.stack([ONE, ONE])
    assert likely_rows(known, Key("gradient", 5), honest) is None
    assert likely_rows(known, Key("model", 5), honest) is not None
    assert likely_rows(known, Key("model", 0), honest) is None  # before the first gradients
    alone = replace(known, gradients=lambda key, length: {"worker-0": ONE}, notes=Notes())
    assert likely_rows(alone, Key("model", 5), honest) is None


def test_what_servers_might_have_said_comes_from_the_gradients_that_they_went_along():
    looked = []

    def gradients(key, length):
        looked.append(key)
        return {"worker-0": key.step * ONE, "worker-1": 3 * key.step * ONE}

    plan = Plan(n=4, f=1, rate=lambda step: 0.1 * step, gradients=gradients)
    honest = np.stack([ONE, ONE])
    for _ in range(2):  # the second time from the notes
        likely = likely_rows(plan, Key("aggregate", 1), honest)
        np.testing.assert_allclose(likely, np.stack([0 * ONE, 2 * ONE]))
    likely = likely_rows(plan, Key("proposal", 5), honest)  # after step 4, at a rate of 0.4
    np.testing.assert_allclose(likely, np.stack([2.6 * ONE, -0.6 * ONE]), rtol=1e-6)
    assert looked == [Key("gradient", 1), Key("gradient", 4)]
