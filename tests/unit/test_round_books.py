"""What a round books to whom: on a clock that a test sets, with replies that come when it says."""

from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from garfield import GARS, QuorumError, Worker
from garfield.apps.crash_tolerant import PrimaryWorker
from garfield.core.silence import NOT_NEEDED, Reason, Silence, gone
from garfield.nodes.node import Node, Unheard, Waits
from garfield.nodes.patience import Patience
from garfield.nodes.quorum import Progress, Quorum, left_s
from garfield.nodes.round import Round
from garfield.nodes.standing import STANDING
from garfield.transport.contract import Key, Replies
from garfield.transport.simulated import Simulation

PEERS = ["a", "b", "c", "d"]
T, GIVE_UP = 4.0, 20.0
ROW = np.ones(2, np.float32)
OF_ALL = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 1)


class Scripted:
    """A transport on which peers answer so many seconds after they are asked, or never."""

    name = "me"

    def __init__(self):
        self.now_s = 1000.0
        self.late = frozenset()
        self.asked = []

    def shared_copy(self, vector):
        return None

    def serve(self, outbox):
        pass

    def answers(self, **after_s):
        self.after_s = after_s

    def pull(self, peers, key, *, length, until, timeout_s, stall_s):
        self.asked.append((timeout_s, stall_s))
        began, rows = self.now_s, {}
        coming = sorted((after_s, peer) for peer, after_s in self.after_s.items())
        while True:
            still = [peer for peer in peers if peer not in rows]
            wait_s = until(SimpleNamespace(rows=rows, steps={}, gone={}, failed={}, open=still))
            ends_s = min(began + timeout_s, self.now_s + wait_s)
            if not coming or began + coming[0][0] > ends_s:
                self.now_s = ends_s
                break
            after_s, peer = coming.pop(0)
            self.now_s = began + after_s
            rows[peer] = ROW
        until(SimpleNamespace(rows=rows, steps={}, gone={}, failed={}, open=still))
        silent = dict.fromkeys((p for p in sorted(peers) if p not in rows), NOT_NEEDED)
        return Replies(tuple(sorted(rows)), (ROW,) * len(rows), silent, late=self.late)


def a_node():
    transport = Scripted()
    return Node(transport, waits=Waits(T, GIVE_UP), clock=lambda: transport.now_s), transport


def gather(node, transport, quorum=OF_ALL, **after_s):
    """What comes of a round, and how long it took."""
    transport.answers(**after_s)
    began = transport.now_s
    found = node.gather(PEERS, Key("gradient", 0), length=2, quorum=quorum)
    return found, transport.now_s - began


def test_a_late_peer_is_waited_for_and_pays_with_its_credit_others_do_not():
    node, transport = a_node()
    _, took_s = gather(node, transport, a=0.0, b=1.0, c=2.0, d=5.0)
    assert took_s == 5.0
    credit = {peer: node._patience.credit_s(peer) for peer in PEERS}
    assert credit == {"a": T, "b": T, "c": T, "d": T - 3.0}  # three were enough after two seconds


def test_credit_that_is_spent_is_not_spent_again_and_replies_in_time_bring_it_back():
    node, transport = a_node()
    took = [gather(node, transport, a=0.0, b=0.0, c=0.0)[1] for _ in range(3)]
    assert took == [T, 0.0, 0.0]  # waited for in full, once
    for _ in range(8):
        assert node._patience.credit_s("d") == 0.0
        gather(node, transport, a=0.0, b=0.0, c=0.0, d=0.0)
    assert gather(node, transport, a=0.0, b=0.0, c=0.0)[1] == T


def test_who_was_waited_for_in_full_has_not_answered_and_who_was_not_was_not_needed():
    node, transport = a_node()
    first, _ = gather(node, transport, a=0.0, b=0.0, c=0.0)
    assert first.silent["d"].reason is Reason.NO_ANSWER
    second, _ = gather(node, transport, a=0.0, b=0.0, c=0.0)
    assert second.silent["d"].reason is Reason.NOT_NEEDED
    assert {peer: list(of) for peer, of in node.account.faults.items()} == {
        "d": [Reason.NO_ANSWER],
    }  # fmt: skip
    assert node.account.communication_s == T


def test_only_a_wait_in_full_charges_a_peer_of_a_trusted_server():
    trusted = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 3, trusted=True)
    node, transport = a_node()
    _, took_s = gather(node, transport, trusted, a=0.0, b=0.0, c=0.0)
    assert took_s == T
    assert node._patience.is_charged("d")
    _, took_s = gather(node, transport, trusted, a=0.0, b=0.0, c=0.5)
    assert took_s == 0.5  # charged: nothing is waited for
    _, took_s = gather(node, transport, trusted, a=0.0, b=0.0, d=0.5)
    assert took_s == 0.5 + T
    assert not node._patience.is_charged("d")  # it is back
    assert node._patience.is_charged("c")


def test_short_of_rows_a_round_waits_until_it_is_given_up_and_says_who_was_silent():
    node, transport = a_node()
    with pytest.raises(
        QuorumError, match=r"me got 2 of 4 gradients for step 0 and needs 3"
    ) as told:
        gather(node, transport, a=0.0, c=1.0)
    assert transport.now_s == 1000.0 + GIVE_UP
    assert list(told.value.silent) == ["b", "d"]
    assert transport.asked == [(GIVE_UP, T / 2)]


def test_waits_are_ten_seconds_and_a_minute_unless_said():
    assert Waits() == Waits(timeout_s=10.0, give_up_s=60.0)
    assert Node(Scripted()).waits == Waits()


@pytest.mark.parametrize("spend", [Patience.answered, partial(Patience.missed, in_full=False)])
def test_nobody_owes_more_than_its_credit(spend):
    """So one wait that took too long is forgotten when the credit is filled the next time."""
    patience = Patience(T)
    spend(patience, "a", waited_s=T + 5.0)
    assert patience.credit_s("a") == 0.0


def test_a_round_with_enough_rows_and_nobody_left_to_wait_for_is_over():
    assert left_s(OF_ALL, Progress(3, [], safe_since_s=0.0), Patience(T)) == 0.0


def test_a_round_that_has_waited_in_full_is_over():
    trusted = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 3, trusted=True)
    assert left_s(trusted, Progress(3, ["d"], bare_since_s=T + 1.0), Patience(T)) == 0.0


def test_an_asynchronous_round_takes_as_many_rows_as_it_asked_for_with_their_names():
    node, transport = a_node()
    first = Quorum.of_first(2, 4, 1)
    transport.pull = lambda *given, **named: Replies(tuple(PEERS), (ROW,) * 4)  # all at once
    found = node.gather(PEERS, Key("gradient", 0), length=2, quorum=first)
    assert (found.names, len(found.rows)) == (("a", "b"), 2)


def test_who_answers_late_is_one_to_be_waited_for_again():
    trusted = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 3, trusted=True)
    node, transport = a_node()
    gather(node, transport, trusted, a=0.0, b=0.0, c=0.0)
    assert node._patience.is_charged("d")
    transport.late = frozenset({"d"})  # while the next round is under way
    _, took_s = gather(node, transport, Quorum.of_first(3, 4, 1), a=0.0, b=0.0, c=0.0)
    assert took_s == 0.0
    assert not node._patience.is_charged("d")


def test_who_was_charged_and_has_just_answered_is_waited_for_once_more():
    trusted = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 3, trusted=True)
    node, transport = a_node()
    gather(node, transport, trusted, a=0.0, b=0.0, c=0.0)  # d is charged
    pull, late = transport.pull, [frozenset({"d"}), frozenset()]

    def pull_while_something_late_comes(*given, **named):
        transport.late = late.pop(0)
        return pull(*given, **named)

    transport.pull = pull_while_something_late_comes
    found, took_s = gather(node, transport, trusted, a=0.0, b=0.0, c=0.0)
    assert (len(transport.asked), took_s) == (3, T)  # three rows are enough without d again
    assert [row is None for row in found.rows] == [False, False, False, True]


@pytest.mark.parametrize("leads", [True, False])
def test_who_claims_to_be_past_the_step_is_missing_unless_that_proves_a_lie(leads):
    quorum = Quorum.of_all(4, 1, needs=lambda f: 4, trusted=True, leads=leads)
    replies = Replies(("a", "b", "c"), (ROW,) * 3, {"d": gone(9)}, gone={"d": 9})
    assert Round(quorum, Patience(T), lambda: 0.0).settle(replies) is leads


# -- who may have gone back -----------------------------------------------------------------------

LOOKING = replace(OF_ALL, looks_back_after_s=2.0)


def test_who_hears_no_more_than_may_lie_looks_back_and_the_wait_is_booked():
    node, transport = a_node()
    node._patience.missed("d", 0.0, in_full=True)
    transport.late = frozenset({"d"})
    with pytest.raises(Unheard):
        gather(node, transport, LOOKING, a=0.5)
    assert transport.now_s == 1002.0
    assert node.account.communication_s == 2.0
    assert not node._patience.is_charged("d")


def test_who_hears_more_than_may_lie_waits_on():
    node, transport = a_node()
    with pytest.raises(QuorumError, match="got 2 of 4"):
        gather(node, transport, LOOKING, a=0.5, b=0.5)
    assert transport.now_s >= 1000.0 + GIVE_UP


def test_nobody_is_looked_back_for_where_nobody_is_left_to_answer():
    patience = Patience(T)
    assert left_s(LOOKING, Progress(1, ["d"], since_s=0.5), patience) == 1.5
    assert left_s(LOOKING, Progress(1, ["d"]), patience) == 2.0
    assert left_s(LOOKING, Progress(1, ["d"], since_s=9.0), patience) == 0.0
    assert left_s(LOOKING, Progress(1, [], since_s=9.0), patience) == inf
    assert left_s(LOOKING, Progress(2, ["d"], since_s=9.0), patience) == inf
    assert not Progress(0, ["d"]).looks_back(OF_ALL)


# -- who is left behind ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard", "gone", "proven", "behind"),
    [(0, 2, 0, True), (0, 1, 0, False), (2, 1, 0, True), (1, 1, 0, False), (3, 0, 0, False)],
)
def test_a_node_is_left_behind_by_more_than_may_lie_or_where_nobody_else_is_left(
    heard, gone, proven, behind
):
    assert OF_ALL.left_behind(heard, gone, proven) is behind


def test_a_trusted_server_is_left_behind_by_more_than_may_lie_alone():
    trusted = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 1, trusted=True)
    assert not trusted.left_behind(2, 1, 0)
    assert trusted.left_behind(0, 2, 0)


def test_only_who_leads_takes_a_claim_of_the_future_for_a_lie():
    past = {"d": gone(9)}
    plain = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 1, trusted=True)
    leading = Quorum.of_all(4, 1, needs=lambda f: 2 * f + 1, trusted=True, leads=True)
    assert (plain.proven(past), leading.proven(past)) == (0, 1)
    assert OF_ALL.proven(past) == 0
    assert leading.proven({**past, "c": past["d"]}) == 0  # more than may lie: it is not so


def test_the_bare_quorum_is_at_least_one_row_and_never_more_than_the_safe_one():
    assert Quorum.of_all(4, 1, needs=lambda f: 9, trusted=True).bare_without(0) == 3
    assert Quorum(2, (2, 2, 2), 2, trusted=True).bare_without(0) == 1
    assert Quorum(9, (4, 3), 1, trusted=True).bare_without(0) == 4
    assert Quorum(9, (4, 3), 1, trusted=True).bare_without(1) == 3
    assert Quorum(9, (4, 3), 1).bare_without(0) == 4


def test_in_doubt_it_waits_longer_before_it_looks_for_what_is_newer():
    doubting = Quorum(4, (3, 3), 1, doubt=4.0)
    unsure = Progress(2, ["c", "d"], gone_since_s=1.0)
    assert left_s(doubting, unsure, Patience(T)) == 4 * T - 1.0
    sure = Progress(2, ["c", "d"], gone_since_s=1.0, surely_gone=True)
    assert left_s(doubting, sure, Patience(T)) == T - 1.0
    assert left_s(OF_ALL, unsure, Patience(T)) == T - 1.0
    assert left_s(doubting, Progress(1, ["d"], gone_since_s=1.0), Patience(T)) == 0.0


def look_for_newer(node, transport, *, count=3, unsure=False, **after_s):
    transport.answers(**after_s)
    return node.newest(PEERS, "model", length=2, beyond=3, count=count, f=1, unsure=unsure)


def test_in_doubt_a_node_looks_twice_as_long_each_time_and_not_after_a_round_that_went_on():
    node, transport = a_node()
    node._doubt.since = transport.now_s
    assert [look_for_newer(node, transport, a=0.0) for _ in range(3)] == [None] * 3
    assert [asked_s for asked_s, _ in transport.asked] == [T, 2 * T, 4 * T]
    gather(node, transport, a=0.0, b=0.0, c=0.0, d=0.0)
    assert not node.in_doubt
    assert node._doubt.time_outs == 1.0


def test_who_does_not_doubt_looks_until_it_gives_up_and_doubts_no_more_for_it():
    node, transport = a_node()
    with pytest.raises(QuorumError, match="got 2 of 4 newest models and needs 3"):
        look_for_newer(node, transport, a=0.0, b=0.0)
    assert transport.asked == [(GIVE_UP, T / 2)]
    assert node._doubt.time_outs == 1.0


def test_who_may_have_gone_back_with_all_others_looks_once_and_finds_nothing_if_liars_answer():
    node, transport = a_node()
    assert look_for_newer(node, transport, unsure=True, a=0.0) is None
    assert transport.asked == [(T, T / 2)]
    with pytest.raises(QuorumError, match="got 2 of 4"):  # one of them is honest, and further on
        look_for_newer(node, transport, unsure=True, a=0.0, b=0.0)


def test_where_others_are_too_few_to_take_anything_from_doubt_is_of_no_use():
    node, transport = a_node()
    with pytest.raises(QuorumError, match="must hear 5 of them, and there are 4"):
        look_for_newer(node, transport, count=5)
    node._doubt.since = transport.now_s
    assert look_for_newer(node, transport, count=5) is None
    assert transport.asked == []
    gather(node, transport, a=0.0, b=0.0, c=0.0, d=0.0)
    assert node._doubt.time_outs == inf  # for good


# -- workers --------------------------------------------------------------------------------------

SERVERS = [f"server-{i}" for i in range(4)]
BATCH = (torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))


def a_worker(simulation, servers=SERVERS, kind=Worker, **named):
    return kind(
        nn.Linear(3, 2), [BATCH], servers=servers, transport=simulation.transport("worker-0"),
        clock=lambda: simulation.now_s, waits=Waits(1.0, 5.0), **named,
    )  # fmt: skip


def models(simulation, steps, size=8):
    for name, step in steps.items():
        node = Node(simulation.transport(name))
        if step is not None:
            value = float(name.rpartition("-")[2])
            node.outbox.publish(Key("model", step), np.full(size, value, np.float32))


def done(simulation, program):
    found = []
    simulation.spawn(lambda: found.append(program()))
    simulation.run()
    return found[0]


def test_a_worker_expects_no_fault_and_has_no_momentum_unless_told():
    worker = a_worker(Simulation())
    assert (worker.f_ps, worker.momentum, worker.q_ps) == (0, 0.0, 4)


def mean(gradients, f):
    return np.mean([row for row in gradients if row is not None], axis=0)


def test_models_may_be_joined_by_any_function_and_then_all_are_needed():
    simulation = Simulation()
    models(simulation, dict.fromkeys(SERVERS, 0))
    worker = a_worker(simulation, f_ps=1, model_gar=mean)
    parameters, _ = done(simulation, worker.fetch_model)
    assert set(parameters) == {1.5}
    for steps in (0, 3):  # at its step, and past it
        simulation = Simulation()
        models(simulation, dict.fromkeys(SERVERS, steps) | {"server-1": None})
        worker = a_worker(simulation, f_ps=1, model_gar=mean)
        with pytest.raises(QuorumError, match=r"got 3 of 4 .* and needs 4"):
            done(simulation, worker.fetch_model)


def test_by_a_rule_as_many_are_enough_as_it_needs():
    for steps, expected in ((0, 0), (3, 3)):
        simulation = Simulation()
        models(simulation, dict.fromkeys(SERVERS, steps) | {"server-1": None})
        worker = a_worker(simulation, f_ps=1, model_gar=GARS["trimmed-mean"])
        parameters, _ = done(simulation, worker.fetch_model)
        assert (worker.step, set(parameters)) == (expected, {2.0})  # the median of 0, 2 and 3


def test_several_servers_need_a_rule():
    simulation = Simulation()
    models(simulation, dict.fromkeys(SERVERS, 0))
    with pytest.raises(QuorumError, match="several servers and no model_gar"):
        done(simulation, a_worker(simulation).fetch_model)


def test_one_server_needs_none_and_takes_its_worker_along():
    simulation = Simulation()
    models(simulation, {"server-3": 9})
    worker = a_worker(simulation, servers=["server-3"])
    parameters, buffers = done(simulation, worker.fetch_model)
    assert (worker.step, set(parameters), len(buffers)) == (9, {3.0}, 0)


def test_one_that_follows_a_primary_goes_where_that_is_and_to_the_next_when_it_is_silent():
    simulation = Simulation()
    models(simulation, {"server-0": None, "server-1": 9, "server-2": 0})
    worker = a_worker(simulation, servers=SERVERS[:3], kind=PrimaryWorker)
    parameters, _ = done(simulation, worker.fetch_model)
    assert (worker.primary, worker.step, set(parameters)) == (1, 9, {1.0})
    assert simulation.now_s == 1.0  # one time-out


def test_a_worker_serves_until_its_servers_are_silent():
    simulation = Simulation()
    models(simulation, {"server-3": 0})
    worker = a_worker(simulation, servers=["server-3"])
    with pytest.raises(QuorumError, match="got 0 of 1 models for step 1"):
        done(simulation, worker.serve)
    assert worker.step == 1


def test_who_hears_nobody_looks_back_after_a_time_out_and_every_half_of_one_from_then_on():
    simulation, looks = Simulation(), []
    models(simulation, {"server-3": 9})
    worker = a_worker(simulation, servers=["server-3"])
    worker.step = 10  # its server stands at 9, as it should
    pull = worker.transport.pull

    def noted(peers, key, **named):
        if key.kind == STANDING.name:
            looks.append(simulation.now_s)
        return pull(peers, key, **named)

    worker.transport.pull = noted
    with pytest.raises(QuorumError, match="got 0 of 1 models for step 10"):
        done(simulation, worker.fetch_model)
    assert looks[:4] == pytest.approx([1.0, 1.5, 2.0, 2.5], abs=0.02)
    assert worker.went_back == []


def test_silence_at_the_end_of_a_run_is_no_failure():
    simulation = Simulation()
    models(simulation, {"server-3": 0})
    worker = a_worker(simulation, servers=["server-3"])
    done(simulation, lambda: worker.serve(lambda: simulation.now_s > 4.0))
    assert worker.step == 1
    assert simulation.now_s == pytest.approx(7.5, abs=0.01)  # half as long again as its server


@pytest.mark.parametrize(("q", "rows"), [(4, 4), (3, 3)])
def test_a_worker_that_waits_for_q_models_joins_those(q, rows):
    simulation = Simulation()
    models(simulation, dict.fromkeys(SERVERS, 0))
    joined = []

    def rule(gradients, f):
        joined.append((len(gradients), f))
        return mean(gradients, f)

    worker = a_worker(simulation, f_ps=1, q_ps=q, model_gar=rule)
    done(simulation, worker.fetch_model)
    assert joined == [(rows, 1)]


def test_reasons_other_than_not_needed_stay():
    """A peer that has proved to be faulty is not called late."""
    node, transport = a_node()
    odd = Silence(Reason.WRONG_SIZE, "sent 4 of 8 bytes")
    before = transport.pull

    def pull(*given, **named):
        found = before(*given, **named)
        return Replies(found.names, found.rows, {**found.silent, "d": odd})

    transport.pull = pull
    found, _ = gather(node, transport, a=0.0, b=0.0, c=0.0)
    assert found.silent["d"] == odd
