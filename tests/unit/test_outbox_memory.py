"""An outbox holds few vectors, and takes one over without a copy if it is given it."""

from __future__ import annotations

import numpy as np
import pytest

from garfield.nodes.outbox import Outbox
from garfield.nodes.spied import spied
from garfield.nodes.worker import Worker
from garfield.transport.contract import NEWEST, Gone, Key, NotYet, Ready, Refused
from garfield.transport.simulated import Simulation


def test_a_vector_that_is_handed_over_is_not_copied_and_can_no_longer_be_written() -> None:
    outbox, vector = Outbox(), np.ones(3, np.float32)
    outbox.publish(Key("gradient", 0), vector, copy=False)
    answer = outbox.answer("server", Key("gradient", 0))
    assert isinstance(answer, Ready)
    assert answer.payload is vector
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 2.0


@pytest.mark.parametrize(("kind", "kept"), [("model", 2), ("gradient", 2), ("proposal", 1)])
def test_only_the_last_steps_are_kept_and_older_ones_are_gone(kind: str, kept: int) -> None:
    outbox = Outbox()
    for step in range(6):
        outbox.publish(Key(kind, step), np.full(3, step, np.float32))
    answers = [outbox.answer("asker", Key(kind, step)) for step in range(7)]
    assert [type(answer) for answer in answers] == [Gone] * (6 - kept) + [Ready] * kept + [NotYet]


def test_a_servers_proposal_lives_until_its_next_one() -> None:
    outbox, proposal = Outbox(), Key("proposal", 4)
    outbox.publish(proposal, np.ones(3, np.float32))
    assert isinstance(outbox.answer("server-1", proposal), Ready)
    outbox.publish(Key("proposal", 5), np.ones(3, np.float32))
    assert outbox.answer("server-1", proposal) == Gone(5)


def test_a_proposal_that_is_forgotten_is_answered_by_the_model_joined_from_it() -> None:
    outbox, proposal = Outbox(), Key("proposal", 4)
    outbox.publish(proposal, np.full(3, 1.0, np.float32))
    outbox.publish(Key("model", 4), np.full(3, 2.0, np.float32))
    assert outbox.answer("server-1", proposal).payload[0] == 1.0  # as long as it is there
    outbox.publish(Key("proposal", 5), np.full(3, 3.0, np.float32))
    assert outbox.answer("server-1", proposal).payload[0] == 2.0
    outbox.publish(Key("model", 6), np.full(3, 4.0, np.float32))
    assert outbox.answer("server-1", proposal) == Gone(6)


def test_vectors_are_kept_the_transports_way_and_the_oldest_makes_room_first() -> None:
    outbox, alive = Outbox(), []

    def shared_copy(vector: np.ndarray) -> np.ndarray:
        alive.append(len(outbox._vectors))
        return vector.copy()

    outbox.shared_copy = shared_copy
    for step in range(3):
        outbox.publish(Key("proposal", step), np.full(3, step, np.float32))
    assert alive == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        outbox.own(Key("proposal", 2))[0] = 1.0


class Counting:
    """A model of three numbers and a buffer, whose gradient at step t is t + 1 everywhere."""

    size, tail = 3, 1

    def __init__(self) -> None:
        self.computed = 0

    def write(self, vector: np.ndarray) -> None:
        self.written = vector

    def gradient(self, batch: object, out: np.ndarray) -> float:
        self.computed += 1
        out[:] = self.computed
        return 0.0


def test_a_worker_keeps_its_velocity_in_what_it_has_published_and_nowhere_else() -> None:
    adapter = Counting()
    worker = Worker(
        adapter, [(0, 0)], transport=Simulation().transport("worker-0"), servers=["server-0"],
        momentum=0.5,
    )  # fmt: skip
    published = []
    for step in (0, 1, 7):  # the last one after a jump, as of a worker that fell behind
        worker.compute(step, np.zeros(4, np.float32))
        published.append(worker.outbox.own(Key("gradient", step)))
        assert worker.velocities[step + 1] is published[-1]
        assert [each for at, each in worker.velocities.items() if at <= step] == published[-2:-1]
        assert len(worker.velocities) <= 2
    # v ← v / 2 + g, and the buffer as it is
    assert [vector.tolist() for vector in published] == [
        [1, 1, 1, 1], [2.5, 2.5, 2.5, 2], [4.25, 4.25, 4.25, 3],
    ]  # fmt: skip


def test_momentum_is_added_once_to_every_number_also_of_long_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("garfield.nodes.worker._BLOCK", 2)  # of three numbers: one block and a half
    worker = Worker(
        Counting(), [(0, 0)], transport=Simulation().transport("worker-0"), servers=["server-0"],
        momentum=0.5,
    )  # fmt: skip
    for step in range(2):
        worker.compute(step, np.zeros(4, np.float32))
    assert worker.outbox.own(Key("gradient", 1)).tolist() == [2.5, 2.5, 2.5, 2]


def test_a_first_velocity_is_taken_up_at_the_step_of_the_first_gradient_alone() -> None:
    asked = []

    def saved(step: int) -> np.ndarray:
        asked.append(step)
        return np.full(3, 8.0, np.float32)

    worker = Worker(
        Counting(), [(0, 0)], transport=Simulation().transport("worker-0"), servers=["server-0"],
        momentum=0.5,
    )  # fmt: skip
    worker.first_velocity = saved
    for step in (6, 7):
        worker.compute(step, np.zeros(4, np.float32))
    assert asked == [6]
    assert worker.outbox.own(Key("gradient", 6)).tolist() == [5.0, 5.0, 5.0, 1]
    assert worker.outbox.own(Key("gradient", 7)).tolist() == [4.5, 4.5, 4.5, 2]


def test_a_gradient_is_computed_at_the_model_given_and_its_time_is_counted() -> None:
    times = iter([3.0, 3.5, 10.0, 12.0])
    adapter = Counting()
    worker = Worker(
        adapter, [(0, 0)], transport=Simulation().transport("worker-0"), servers=["server-0"],
        clock=lambda: next(times),
    )  # fmt: skip
    for step in range(2):
        worker.compute(step, np.full(4, step, np.float32))
        assert adapter.written.tolist() == [step] * 4
    assert worker.compute_s == 2.5
    assert worker.velocities == {}  # without momentum


def test_steps_never_fall_whatever_is_published_later() -> None:
    outbox = Outbox()
    outbox.publish(Key("model", 5), np.ones(3, np.float32))
    outbox.publish(Key("proposal", 4), np.ones(3, np.float32))
    assert outbox.step == 5
    assert outbox.answer("asker", Key("model", 3)) == Gone(5)


def test_the_newest_comes_with_its_own_step_and_only_if_it_is_new_enough() -> None:
    outbox = Outbox()
    for step in (4, 5):
        outbox.publish(Key("model", step), np.full(3, step, np.float32))
    answers = {least: outbox.answer("asker", Key("model", NEWEST, least)) for least in (4, 5, 6)}
    assert answers[6] == NotYet()
    for least in (4, 5):
        answer = answers[least]
        assert isinstance(answer, Ready)
        assert (answer.step, answer.payload[0]) == (5, 5.0)
    assert outbox.answer("asker", Key("gradient", NEWEST, 0)) == NotYet()


def test_only_a_declared_spy_may_look_and_it_sees_what_is_there() -> None:
    outbox, key = Outbox(), Key("gradient", 0)
    outbox.publish(key, np.ones(3, np.float32))
    outbox.audience = lambda asker, kind: asker == "server-0"
    outbox.spied_by = frozenset({"liar"})
    for asker, asked, kind in (
        ("liar", spied(key), Ready), ("liar", key, Refused), ("server-0", spied(key), Refused),
        ("server-0", key, Ready),
    ):  # fmt: skip
        assert isinstance(outbox.answer(asker, asked), kind), (asker, asked)


def test_what_is_left_out_is_gone_at_once_and_whoever_waits_for_it_is_woken():
    outbox, woken = Outbox(), []
    outbox.publish(Key("proposal", 3), np.zeros(2))
    outbox.watch(lambda: woken.append(1))
    outbox.leave_out(Key("proposal", 4))
    assert woken == [1]
    assert outbox.answer("server-1", Key("proposal", 4)) == Gone(5)
    assert isinstance(outbox.answer("server-1", Key("model", 4)), NotYet)
    assert isinstance(outbox.answer("server-1", Key("proposal", 5)), NotYet)
    assert isinstance(outbox.answer("server-1", Key("proposal", 3)), Ready)


def test_what_was_published_is_there_even_if_it_is_left_out_later():
    outbox = Outbox()
    outbox.publish(Key("proposal", 4), np.zeros(2))
    outbox.leave_out(Key("proposal", 4))
    assert isinstance(outbox.answer("server-1", Key("proposal", 4)), Ready)


def test_of_what_was_left_out_long_ago_nothing_is_remembered():
    outbox = Outbox()
    for step in range(100):
        outbox.publish(Key("model", step), np.zeros(2))
        outbox.leave_out(Key("proposal", step))
    assert len(outbox._left_out) <= 3
    assert outbox.answer("server-1", Key("proposal", 7)) == Gone(99)


def test_who_goes_back_forgets_what_will_be_done_again_and_wakes_whoever_waits() -> None:
    outbox, woken = Outbox(), []
    for step in (5, 6):
        outbox.publish(Key("gradient", step), np.ones(2, np.float32))
    outbox.leave_out(Key("proposal", 6))
    outbox.answer("server-0", Key("gradient", 6))
    outbox.watch(lambda: woken.append(True))
    outbox.go_back(6)
    assert woken
    assert (outbox.step, outbox.asked) == (6, {})
    assert isinstance(outbox.answer("server-0", Key("gradient", 5)), Ready)
    for kind in ("gradient", "proposal"):
        assert isinstance(outbox.answer("server-0", Key(kind, 6)), NotYet)
