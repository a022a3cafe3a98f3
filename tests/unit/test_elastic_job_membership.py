"""How one worker gets to its next group, when the others are not there, or not any more."""

import threading
import time

import pytest

from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.job.coordination import Generation
from garfield.elastic.job.group import GLOO
from garfield.elastic.job.membership import Membership
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.job.watcher import Watcher

ALONE = Generation(1, ("a",))
BOTH = Generation(1, ("a", "b"))


class Flaky:
    """An agreement that can be lost for a while."""

    def __init__(self, kept):
        self._kept, self.lost = kept, False

    def __getattr__(self, name):
        if self.lost:
            raise CoordinationUnreachable("It is gone.")
        return getattr(self._kept, name)


class Worker:
    def __init__(self, path, member="a", timeout_s=0.2):
        self.agreed = Flaky(SqliteCoordination(path))
        self.told_to_leave = False
        self.watcher = Watcher(self.agreed, member, poll_s=0.01)
        self.membership = Membership(
            self.agreed, member, self.watcher, backend=GLOO, timeout_s=timeout_s,
            is_told_to_leave=lambda: self.told_to_leave,
        )  # fmt: skip

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.agreed.lost = False
        self.watcher.close()
        self.agreed.close()


@pytest.fixture
def worker(tmp_path):
    with Worker(tmp_path / "job.sqlite") as worker:
        yield worker


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_survivor_does_not_wait_for_newcomers_that_are_not_ready(worker):
    worker.agreed.propose(["a"], after=0)
    worker.agreed.propose(["a", "c"], after=1)
    group = worker.membership.next_group(ALONE)
    assert group.generation == Generation(3, ("a",))


def test_a_newcomer_that_was_ready_and_does_not_come_is_given_up(worker):
    worker.agreed.propose(["a"], after=0)
    worker.agreed.propose(["a", "c"], after=1)
    worker.agreed.arrive(2, "c")
    wait(lambda: worker.watcher.ready_generation(ALONE) == 2)
    group = worker.membership.next_group(ALONE)
    assert group.generation == Generation(3, ("a",))


def test_one_who_has_slept_gives_up_nobody_who_went_on_meanwhile(worker):
    worker.agreed.propose(["a", "b"], after=0)
    worker.agreed.begin(1)
    worker.agreed.propose(["c"], after=1)
    worker.agreed.begin(2)
    worker.agreed.propose(["a", "c"], after=2)
    found = []
    waiting = threading.Thread(target=lambda: found.append(worker.membership.next_group(BOTH)))
    waiting.start()
    waiting.join(3 * 0.2)  # longer than a newcomer would be waited for
    assert not found
    assert worker.agreed.read().generation == Generation(3, ("a", "c"))
    worker.told_to_leave = True
    waiting.join(60)
    assert found == [None]


def test_a_member_that_ended_is_waited_for_until_a_controller_leaves_it_out(worker):
    worker.agreed.propose(["a", "b"], after=0)
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(worker.membership.next_group(BOTH, failed=1))
    )
    waiting.start()
    wait(lambda: worker.agreed.read().generation.number == 2)
    assert worker.agreed.read().generation.members == ("a", "b")
    waiting.join(3 * 0.2)  # longer than a newcomer would be waited for
    assert not found
    assert worker.agreed.read().generation.number == 2
    assert worker.agreed.propose(["a"], after=2)
    waiting.join(60)
    assert found[0].generation == Generation(3, ("a",))


def test_who_leaves_by_agreement_is_left_out_by_the_others(worker):
    worker.agreed.propose(["a", "b"], after=0)
    group = worker.membership.next_group(BOTH, without={"b"})
    assert (group.generation, group.rank) == (Generation(2, ("a",)), 0)


def test_one_who_is_left_out_has_no_next_group_and_a_newcomer_waits_for_its_turn(worker):
    worker.agreed.propose(["b"], after=0)
    assert worker.membership.next_group(BOTH) is None
    found = []
    waiting = threading.Thread(target=lambda: found.append(worker.membership.next_group(None)))
    waiting.start()
    worker.agreed.propose(["a"], after=1)
    waiting.join(60)
    assert found[0].generation == Generation(2, ("a",))


def test_nobody_joins_a_training_that_is_finished_or_when_told_to_leave(worker):
    worker.agreed.propose(["a", "b"], after=0)
    worker.told_to_leave = True
    assert worker.membership.next_group(None) is None
    worker.told_to_leave = False
    worker.agreed.finish()
    assert worker.membership.next_group(BOTH, failed=1) is None


def test_an_agreement_that_is_lost_is_waited_for_and_nothing_changes_meanwhile(worker):
    worker.agreed.propose(["a"], after=0)
    wait(lambda: worker.watcher.view.generation == ALONE)
    worker.agreed.lost = True
    found = []
    waiting = threading.Thread(target=lambda: found.append(worker.membership.next_group(None)))
    waiting.start()
    waiting.join(0.1)
    assert not found
    assert worker.watcher.view.generation == ALONE
    assert worker.watcher.ready_generation(ALONE) == 1
    worker.agreed.lost = False
    waiting.join(60)
    assert found[0].generation == ALONE


def test_the_first_member_of_the_next_generation_opens_its_store_ahead(worker):
    worker.agreed.propose(["b"], after=0)
    worker.agreed.begin(1)
    worker.agreed.propose(["a", "b"], after=1)
    wait(lambda: worker.agreed.read().store)
    assert worker.agreed.read().store.startswith("127.0.0.1:")
    offered = worker.watcher.offer(Generation(2, ("a", "b")))
    assert offered.address == worker.agreed.read().store
