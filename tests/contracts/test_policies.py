"""One contract for every policy in the registry: a new one is tested by registering it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.elastic.policy import POLICIES, Job, JobRequest, Measurement, parse
from garfield.elastic.policy.admission import admitted
from garfield.elastic.policy.policy import check_decision
from garfield.elastic.policy.snapshot import on_one_node
from tests.elastic_snapshots import snapshots

every_policy = pytest.mark.parametrize("name", tuple(POLICIES))
some = settings(max_examples=40)
SHARING = ("era", "era-marginal", "afs-p")
"""Those that use all GPUs."""


@every_policy
@some
@given(snapshot=snapshots())
def test_a_decision_can_be_followed(name, snapshot):
    decision = parse(name).decide(snapshot)
    check_decision(snapshot, decision)
    for job in snapshot.jobs:
        assert decision[job.name].workers <= max(job.most_workers, job.workers)


@every_policy
@some
@given(snapshot=snapshots(), seed=st.integers(0, 9))
def test_the_same_snapshot_gives_the_same_decision_in_whatever_order_jobs_stand(
    name, snapshot, seed
):
    shuffled = list(snapshot.jobs)
    random.Random(seed).shuffle(shuffled)
    asked = parse(name)
    first = asked.decide(snapshot)
    asked.decide(replace(snapshot, jobs=()))  # remembers nothing of it
    assert asked.decide(replace(snapshot, jobs=tuple(shuffled))) == first
    assert parse(name).decide(snapshot) == first


@every_policy
@some
@given(snapshot=snapshots(lost=False))
def test_between_rounds_jobs_are_started_and_nothing_else(name, snapshot):
    decision = parse(name).admit(snapshot)
    check_decision(snapshot, decision)
    for job in snapshot.running:
        assert decision[job.name].workers == job.workers
    for job in snapshot.waiting:
        assert decision[job.name].workers in (0, min(job.request.start_workers, job.most_workers))


@every_policy
@some
@given(snapshot=snapshots())
def test_batches_keep_within_their_bounds(name, snapshot):
    decision = parse(name).decide(snapshot)
    for job in snapshot.jobs:
        share = decision[job.name]
        request = job.request
        if share.workers:
            assert share.batch >= request.batch
            assert share.batch <= max(request.max_batch or share.batch, request.batch)
            if job.oom_batch is not None:
                assert share.batch <= max(request.batch, job.oom_batch // 2)
            if share.workers > job.workers or share.batch > job.batch:
                together = share.workers * share.batch
                assert together <= (request.max_global_batch or together)


@every_policy
@some
@given(snapshot=snapshots())
def test_queues_are_first_come_first_served(name, snapshot):
    """Who waits on is never overtaken by one behind it, unless it cannot run on these GPUs."""
    decision = parse(name).decide(snapshot)
    possible = [job for job in snapshot.waiting if job.request.min_workers <= snapshot.gpus]
    starts = [decision[job.name].workers > 0 for job in possible]
    assert starts == sorted(starts, reverse=True)


@every_policy
@some
@given(snapshot=snapshots())
def test_the_latest_arrivals_are_suspended_and_only_if_gpus_were_lost(name, snapshot):
    decision = parse(name).decide(snapshot)
    goes_on = [decision[job.name].workers > 0 for job in snapshot.running]
    assert goes_on == sorted(goes_on, reverse=True)
    if snapshot.idle >= 0:
        assert all(goes_on)


@pytest.mark.parametrize("name", SHARING)
@some
@given(snapshot=snapshots(plain=True))
def test_all_gpus_are_used_up_to_what_jobs_may_have(name, snapshot):
    jobs = admitted(snapshot).jobs
    wanted = min(snapshot.gpus, sum(job.most_workers for job in jobs))
    assert parse(name).decide(snapshot).gpus == wanted


@pytest.mark.parametrize("name", SHARING)
@some
@given(snapshot=snapshots(plain=True))
def test_running_jobs_make_room_for_whoever_waits(name, snapshot):
    decision = parse(name).decide(snapshot)
    for job in admitted(snapshot).entering:
        assert job.request.min_workers <= decision[job.name].workers <= job.most_workers


@pytest.mark.parametrize("name", SHARING)
def test_ties_go_to_the_earlier_arrival(name):
    alike = [
        Job(f"job-{at}", JobRequest(), at).given(2, 64).measured(Measurement(2, 64, 100.0))
        for at in range(3)
    ]
    decision = parse(name).decide(on_one_node(20, tuple(reversed(alike))))
    assert [decision[f"job-{at}"].workers for at in range(3)] == [16, 3, 1]
