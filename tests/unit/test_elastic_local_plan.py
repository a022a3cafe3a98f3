"""Steps from the workers that a job has to those that it should have, one after the other."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.elastic.local.database import WorkerState
from garfield.elastic.local.plan import Steps, WorkerSeen, steps

IN, LEAVING, LOST = WorkerState.IN, WorkerState.LEAVING, WorkerState.LOST


def seen(*members, state=IN, **more):
    return [WorkerSeen(member, state, **more) for member in members]


def test_a_job_starts_all_its_workers_at_once_and_waits_until_all_their_slots_are_free():
    assert steps(2, [], [], 4) == Steps(start=2)
    assert steps(2, [], [], 1) == Steps()


def test_a_job_that_has_what_it_should_is_left_alone():
    assert steps(2, seen("w1", "w2"), ["w1", "w2"], 4) == Steps(members=("w1", "w2"))


def test_who_is_to_go_is_the_last_in_rank_and_left_out_of_the_next_generation():
    found = steps(1, seen("w1", "w2", "w3"), ["w3", "w1", "w2"], 0)
    assert found == Steps(leave=("w1", "w2"), members=("w3",), propose=True)


def test_the_next_generation_keeps_survivors_in_their_ranks_before_newcomers():
    found = steps(4, seen("w1", "w2"), ["w2", "w1"], 2)
    assert (found.start, found.members) == (2, ("w2", "w1"))


def test_a_lost_worker_is_neither_replaced_nor_left_out_before_it_is_collected():
    workers = seen("w1") + seen("w2", state=LOST, alive=False)
    assert steps(2, workers, ["w1", "w2"], 3) == Steps(members=("w1",))
    collected = steps(1, seen("w1"), ["w1", "w2"], 3)
    assert collected == Steps(members=("w1",), propose=True)


def test_newcomers_that_survivors_left_out_are_named_again_once_they_wait():
    starting = seen("w1") + seen("w2", says="")
    assert not steps(2, starting, ["w1"], 0).propose
    waiting = seen("w1") + seen("w2", says="waiting")
    assert steps(2, waiting, ["w1"], 0) == Steps(members=("w1", "w2"), propose=True)
    left = seen("w1") + seen("w2", says="left")
    assert not steps(2, left, ["w1"], 0).propose


def test_a_daemon_that_came_back_names_workers_that_nobody_named():
    assert steps(2, seen("w1", "w2", named=False), [], 0).propose


def test_without_survivors_nobody_starts_before_all_have_gone():
    leaving = seen("w1", state=LEAVING)
    assert steps(2, leaving, ["w1"], 3) == Steps()
    assert steps(2, [], ["w1"], 3) == Steps(start=2)
    assert steps(2, leaving + seen("w2"), ["w1", "w2"], 3).start == 1


def test_a_job_that_should_have_nothing_gives_up_all_and_proposes_nothing():
    assert steps(0, seen("w1", "w2"), ["w1", "w2"], 0) == Steps(leave=("w1", "w2"))


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_steps_lead_to_what_was_wanted_and_never_take_a_slot_that_is_not_free(seed):
    """Workers obey after a while, in any order; some are lost, and collected."""
    rng = random.Random(seed)
    slots, wanted = 6, rng.randint(0, 6)
    workers, generation, made = {}, [], 0
    others = rng.randint(0, slots - wanted)
    for turn in range(60):
        if turn < 20 and rng.random() < 0.2:
            wanted = rng.randint(0, slots - others)
        free = slots - others - len(workers)
        found = steps(wanted, list(workers.values()), generation, free)
        assert found.start <= free
        for member in found.leave:
            workers[member] = WorkerSeen(member, LEAVING)
        new = [f"w{made + at}" for at in range(found.start)]
        made += found.start
        for member in new:
            workers[member] = WorkerSeen(member, IN)
        if new or found.propose:
            generation = [*found.members, *new]
        for member, each in list(workers.items()):
            if each.state is LEAVING and rng.random() < 0.5:
                del workers[member]
            elif each.state is IN and turn < 20 and rng.random() < 0.05:
                workers[member] = WorkerSeen(member, LOST, alive=False)
        lost = [member for member, each in workers.items() if each.state is LOST]
        if lost and rng.random() < 0.5:  # what garbage collection does
            for member in lost:
                del workers[member]
            wanted = min(wanted, len(workers))
    here = [member for member, each in workers.items() if each.state is IN]
    if not any(each.state is LEAVING for each in workers.values()):
        assert len(here) == wanted
    if wanted:
        assert sorted(generation) == sorted(here)


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_finished_step_proposes_nothing_new(wanted):
    members = [f"w{at}" for at in range(wanted)]
    once = steps(wanted, seen(*members, named=False), [], 0)
    assert once.propose
    assert not steps(wanted, seen(*members), once.members, 0).propose
