"""An outbox holds few vectors, and takes one over without a copy if it is given it."""

from __future__ import annotations

import numpy as np
import pytest

from garfield.nodes.outbox import Outbox
from garfield.nodes.worker import Worker
from garfield.transport.contract import Gone, Key, NotYet, Ready
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
    outbox.publish(Key("model", 4), np.ones(3, np.float32))
    assert isinstance(outbox.answer("server-1", proposal), Ready)
    outbox.publish(Key("proposal", 5), np.ones(3, np.float32))
    assert outbox.answer("server-1", proposal) == Gone(5)


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
        """Nothing is learnt."""

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
        assert worker._velocity is published[-1]
    # v ← v / 2 + g, and the buffer as it is
    assert [vector.tolist() for vector in published] == [
        [1, 1, 1, 1], [2.5, 2.5, 2.5, 2], [4.25, 4.25, 4.25, 3],
    ]  # fmt: skip
