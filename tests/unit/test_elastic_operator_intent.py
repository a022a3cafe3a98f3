"""From what a job has to what it should have, without any cluster."""

import random

import pytest

from garfield.elastic.job.coordination import Generation, JobView
from garfield.elastic.operator.intent import Intent, alive, may_start, revised, seen, steps
from garfield.elastic.operator.worker_pods import PodState, WorkerPod

LIVING, LEAVING, LOST = PodState.LIVING, PodState.LEAVING, PodState.LOST
ENDED, FAILED = PodState.ENDED, PodState.FAILED


def pods(**states):
    return {
        name.replace("_", "-"): WorkerPod(name.replace("_", "-"), state, node="n1")
        for name, state in states.items()
    }


def view(number, *members, begun=None):
    return JobView(Generation(number, members), number if begun is None else begun)


def test_a_job_starts_with_new_names_which_are_made_before_they_are_proposed():
    intent = revised(Intent(), JobView(), {}, 2, prefix="j")
    assert intent == Intent(("j-0", "j-1"), after=0, next=2)
    todo = steps(intent, JobView(), {})
    assert (todo.create, todo.propose, todo.delete) == (("j-0", "j-1"), ("j-0", "j-1"), ())


def test_an_operator_that_was_killed_before_it_made_pods_does_not_take_them_for_lost():
    intent = Intent(("j-0", "j-1"), after=0, next=2)
    assert seen(intent, JobView(), pods(j_0=LIVING)).alive == 2
    assert steps(intent, JobView(), pods(j_0=LIVING)).create == ("j-1",)


def test_a_member_without_a_pod_is_lost_and_never_made_again():
    intent = Intent(("j-0", "j-1"), after=0, next=2)
    found = seen(intent, view(1, "j-0", "j-1"), pods(j_0=LIVING))
    assert (found.alive, found.endings) == (1, ["j-1: its pod is gone"])
    after = revised(intent, view(1, "j-0", "j-1"), pods(j_0=LIVING), 2, prefix="j")
    assert after.members == ("j-0", "j-2")


def test_who_leaves_is_deleted_only_when_the_others_have_begun_without_it():
    has = pods(j_0=LIVING, j_1=LIVING, j_2=LIVING)
    now = view(4, "j-0", "j-1", "j-2")
    intent = revised(Intent(("j-0", "j-1", "j-2"), 3, 3), now, has, 2, prefix="j")
    assert intent.members == ("j-0", "j-1")
    assert steps(intent, now, has).propose == ("j-0", "j-1")
    assert steps(intent, now, has).delete == ()
    assert steps(intent, view(5, "j-0", "j-1", begun=4), has).delete == ()
    assert steps(intent, view(5, "j-0", "j-1"), has).delete == ("j-2",)


def test_workers_on_a_cordoned_node_go_first_and_the_first_member_may_be_one():
    has = pods(j_0=LIVING, j_1=LIVING)
    has["j-0"] = WorkerPod("j-0", LIVING, node="cordoned")
    now = view(1, "j-0", "j-1")
    intent = revised(Intent(("j-0", "j-1"), 0, 2), now, has, 1, prefix="j", avoid={"cordoned"})
    assert intent.members == ("j-1",)


def test_a_suspended_jobs_workers_are_told_to_end_and_nobody_is_proposed():
    has, now = pods(j_0=LIVING, j_1=LIVING), view(1, "j-0", "j-1")
    intent = revised(Intent(("j-0", "j-1"), 0, 2), now, has, 0, prefix="j")
    todo = steps(intent, now, has)
    assert (todo.create, todo.propose, todo.delete) == ((), None, ("j-0", "j-1"))


@pytest.mark.parametrize(("state", "may"), [(LEAVING, False), (LOST, False), (ENDED, True)])
def test_a_job_starts_anew_only_when_nobody_of_before_can_still_run(state, may):
    assert may_start(view(3, "j-0"), pods(j_0=state)) is may


def test_newcomers_alone_do_not_count_while_those_of_before_may_still_run():
    intent = Intent(("j-0", "j-1"), after=1, next=2)
    now = view(1, "j-0")
    assert alive(intent, now, pods(j_0=LOST, j_1=LIVING)) == []
    assert alive(intent, now, pods(j_0=ENDED, j_1=LIVING)) == ["j-1"]


def test_what_ended_is_kept_for_its_log_until_others_are_named():
    has = pods(j_0=FAILED)
    assert steps(Intent((), 1, 1), view(1, "j-0"), has).delete == ()
    assert steps(Intent(("j-1",), 1, 2), view(2, "j-1"), has | pods(j_1=LIVING)).delete == ("j-0",)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_a_job_comes_to_what_it_should_have(seed):
    """Pods die, workers move on by themselves, the operator is killed in the middle: at random."""
    rng, intent, now, has = random.Random(seed), Intent(), JobView(), {}
    ever = set()
    for turn in range(60):
        is_calm = turn >= 50
        workers = 3 if is_calm else rng.choice([1, 2, 3, 5])
        if alive(intent, now, has) or may_start(now, has):
            intent = revised(intent, now, has, workers, prefix="j")
        todo = steps(intent, now, has)
        for name in todo.create:
            assert name not in ever, "a name was used twice"
            has[name] = WorkerPod(name, LIVING)
            ever.add(name)
            if not is_calm and rng.random() < 0.2:
                break  # killed here
        else:
            if todo.propose and (is_calm or rng.random() < 0.8):
                assert set(todo.propose) <= set(has)
                now = JobView(Generation(now.generation.number + 1, todo.propose), now.begun)
        for name in todo.delete:
            trains = name in now.generation.members and now.begun == now.generation.number
            assert not (trains and intent.members), "one that others train with was deleted"
            has.pop(name)
        if rng.random() < 0.7 or is_calm:
            now = JobView(now.generation, now.generation.number)
        if not is_calm and has and rng.random() < 0.3:
            name = rng.choice(sorted(has))
            has[name] = WorkerPod(name, rng.choice([ENDED, FAILED]))
    assert [pod.name for pod in has.values() if pod.is_living] == sorted(intent.members)
    assert now.generation.members == intent.members
    assert len(intent.members) == 3
