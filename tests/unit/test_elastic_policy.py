"""Policies of elastic training, one decision at a time."""

from pathlib import Path

import pytest

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.elastic.policy import (
    POLICIES,
    Decision,
    Job,
    JobRequest,
    Measurement,
    Node,
    Policy,
    Share,
    Snapshot,
    parse,
)
from garfield.elastic.policy.admission import admitted, check_fits
from garfield.elastic.policy.decision import Change
from garfield.elastic.policy.era import penalty
from garfield.elastic.policy.measurement import averaged
from garfield.elastic.policy.policy import check_decision
from garfield.elastic.policy.snapshot import on_one_node


def running(name, arrival, workers=2, speeds=(), batch=64, **more):
    job = Job(name, JobRequest(**more), arrival).given(workers, batch)
    for at, (n, t) in enumerate(speeds):
        job = job.measured(Measurement(n, batch, t, 0.5, 0.2, at_s=at))
    return job


def workers(policy, *jobs, gpus=64):
    decision = parse(policy).decide(on_one_node(gpus, jobs))
    return {name: share.workers for name, share in decision.shares.items()}


# -- era ------------------------------------------------------------------------------------------


def test_one_measured_job_jumps_from_two_to_sixteen_in_the_first_round():  # Figure 4.3a
    only = running("a", 0, speeds=[(2, 400.0)])
    assert workers("era", only) == workers("afs-p", only) == {"a": 16}


def test_a_job_that_was_never_measured_gets_no_more_than_it_starts_with():
    assert workers("era", running("a", 0)) == {"a": 2}
    assert workers("era", running("a", 0, workers=1)) == {"a": 2}
    assert workers("era", running("a", 0, workers=5)) == {"a": 5}  # the controller lost its reports


def test_the_more_efficient_job_gets_the_gpus():
    good = running("good", 1, 8, [(4, 400.0), (8, 800.0)])
    poor = running("poor", 0, 8, [(4, 400.0), (8, 420.0)])
    assert workers("era", poor, good, gpus=20) == {"poor": 4, "good": 16}


def test_with_few_rescalings_behind_it_a_job_may_lose_what_a_calmer_one_wins():
    calm = running("calm", 0, 8, [(4, 400.0), (8, 700.0)])
    tossed = running("tossed", 1, 8, [(4, 400.0), (8, 720.0)])
    for _ in range(4):
        calm, tossed = calm.after_round(), tossed.after_round()
    assert workers("era", calm, tossed, gpus=20) == {"calm": 4, "tossed": 16}
    often = tossed.given(6, 64).given(8, 64)
    assert (penalty(often), penalty(calm)) == (0.5, 0)

    found = workers("era", calm, often, gpus=20)
    assert found["tossed"] == 8  # neither its gain nor its loss is worth the penalty
    assert found["calm"] == 12


def test_running_jobs_make_room_for_a_waiting_one():
    full = running("full", 0, 16, [(8, 700.0), (16, 900.0)])
    assert workers("era", full, Job("new", JobRequest(), 1), gpus=16) == {"full": 14, "new": 2}


def test_a_waiting_job_has_no_penalty_whatever_it_went_through():
    job = running("a", 0).given(5, 64).after_round().given(0, 64)
    assert (job.rescalings, job.suspended, penalty(job)) == (1, True, 0)


def test_the_thesis_model_is_chosen_by_a_parameter():
    assert parse("era(model='thesis')").decide(on_one_node(8)).shares == {}
    with pytest.raises(UnknownName, match="Did you mean thesis"):
        parse("era(model='thesi')")
    with pytest.raises(UnknownName, match="parameter of era"):
        parse("era(modl='thesis')")
    with pytest.raises(UnknownName, match="not a policy"):
        parse("erra")


def test_marginal_gains_share_what_the_frozen_rule_gives_to_one():
    def saturating(name, arrival):
        return running(name, arrival, 4, [(n, 64 * n / (0.5 + 0.05 * n)) for n in (2, 4)])

    jobs = [saturating(f"job-{at}", at) for at in range(3)]
    assert list(workers("era", *jobs, gpus=24).values()) == [16, 7, 1]
    assert sorted(workers("era-marginal", *jobs, gpus=24).values()) == [8, 8, 8]


# -- the others -----------------------------------------------------------------------------------


def test_static_starts_in_order_and_changes_nothing():
    old = running("old", 0, 2, [(2, 100.0)])
    big = Job("big", JobRequest(start_workers=8), 1)
    small = Job("small", JobRequest(start_workers=1), 2)
    assert workers("static", old, big, small, gpus=8) == {"old": 2, "big": 0, "small": 0}
    assert workers("static", old, big, small, gpus=11) == {"old": 2, "big": 8, "small": 1}


def test_autoscaler_takes_four_more_each_round_until_sixteen():  # Figure 4.3a: 16 minutes
    job, sizes = running("a", 0), [2]
    while sizes[-1] < 16:
        job = job.measured(Measurement(job.workers, 64, 100.0 * job.workers))
        job = job.given(workers("autoscaler", job)["a"], 64)
        sizes.append(job.workers)
    assert sizes == [2, 6, 10, 14, 16]


def test_autoscaler_goes_back_only_when_throughput_fell_and_stays_there():
    fell = running("a", 0, 10, [(2, 100.0), (6, 300.0), (10, 290.0)])
    assert workers("autoscaler", fell) == {"a": 6}
    assert workers("autoscaler", fell.given(6, 64)) == {"a": 6}
    full = running("a", 0, 16, [(12, 300.0), (16, 310.0)])
    assert workers("autoscaler", full, Job("new", JobRequest(), 1), gpus=16) == {"a": 16, "new": 0}


def test_autoscaler_lets_waiting_jobs_start_before_others_grow():
    old = running("old", 0, 2, [(2, 100.0)])
    new = Job("new", JobRequest(), 1)
    assert workers("autoscaler", old, new, gpus=5) == {"old": 3, "new": 2}
    assert workers("autoscaler", old, new, gpus=3) == {"old": 2, "new": 1}


def test_afs_p_gives_one_each_and_then_to_the_largest_gain():
    good = running("good", 0, 4, [(2, 200.0), (4, 390.0)])
    poor = running("poor", 1, 4, [(2, 200.0), (4, 210.0)])
    assert workers("afs-p", good, poor, gpus=12) == {"good": 11, "poor": 1}
    assert workers("afs-p", good, poor, gpus=2) == {"good": 1, "poor": 1}


# -- admission ------------------------------------------------------------------------------------


def test_waiting_jobs_enter_at_their_minima_first_come_first_served():
    jobs = [Job(f"job-{at}", JobRequest(min_workers=2), at) for at in range(4)]
    found = admitted(on_one_node(5, tuple(jobs)))
    assert [job.name for job in found.entering] == ["job-0", "job-1"]
    assert [job.name for job in found.waiting] == ["job-2", "job-3"]


def test_when_a_node_is_lost_the_latest_arrivals_are_suspended_and_come_back_first():
    jobs = tuple(running(f"job-{at}", at, 4, min_workers=4, start_workers=4) for at in range(3))
    left = Snapshot((Node("a", 8),), (*jobs, Job("new", JobRequest(), 3)))
    for name in ("era", "era-marginal", "afs-p", "static", "autoscaler"):
        decision = parse(name).decide(left)
        assert [decision[f"job-{at}"].workers for at in range(3)] == [4, 4, 0]
        assert decision["new"].workers == 0
        assert decision["job-2"].change(jobs[2]) is Change.SUSPENDED
    suspended = jobs[2].given(0, 64)
    queue = on_one_node(8, (Job("first", JobRequest(), 1), suspended)).waiting
    assert [job.name for job in queue] == ["job-2", "first"]


def test_a_job_that_does_not_fit_now_holds_up_nobody():
    big = Job("big", JobRequest(min_workers=16, start_workers=16), 0)
    assert workers("era", big, Job("new", JobRequest(), 1), gpus=8) == {"big": 0, "new": 2}
    with pytest.raises(ConfigError, match="needs at least 16 workers, and there are 8 GPUs"):
        check_fits("big", big.request, 8)


def test_powers_of_two_are_kept_and_what_they_leave_goes_to_others():
    speeds = [(2, 200.0)]
    pair = running("pair", 0, 2, speeds, powers_of_two=True)
    free = running("free", 1, 2, speeds)
    assert workers("era", pair, free, gpus=14) == {"pair": 8, "free": 6}
    assert workers("era", pair, gpus=64) == {"pair": 16}


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"min_workers": 3}, "min ≤ start ≤ max, got 3, 2 and 16"),
        ({"max_workers": 1}, "min ≤ start ≤ max, got 1, 2 and 1"),
        ({"min_workers": 0}, "min_workers must be at least 1, got 0"),
        ({"max_batch": 32}, "max-batch 32 is below batch 64"),
        ({"max_global_batch": 32}, "max-global-batch 32 is below 64"),
        ({"min_workers": 2, "fixed_global_batch": 1}, "leaves some of 2 workers without"),
        ({"learning_rate": "sqr"}, "Did you mean sqrt"),
        ({"min_workers": 3, "start_workers": 4, "powers_of_two": True}, "power of two"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(asked, told):
    with pytest.raises(ConfigError, match=told):
        JobRequest(**asked)


def test_a_snapshot_knows_each_job_once():
    twice = Job("a", JobRequest(), 0)
    with pytest.raises(InputError, match="same name"):
        on_one_node(4, (twice, twice))


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ({}, "a share for every job"),
        ({"a": Share(5, 64)}, "gives 5 of 4 GPUs"),
        ({"a": Share(1, 64)}, "gets 1 workers, and asked for 2 to 3"),
        ({"a": Share(2, 0)}, "batch 0"),
    ],
)
def test_a_decision_that_nobody_could_follow_is_refused(shares, told):
    job = Job("a", JobRequest(min_workers=2, max_workers=3), 0)
    with pytest.raises(InputError, match=told):
        check_decision(on_one_node(4, (job,)), Decision(shares))


def test_reports_of_workers_are_averaged_and_the_freshest_of_a_size_is_kept():
    both = averaged(
        [Measurement(2, 64, 90.0, 0.4, None, 3), Measurement(2, 64, 110.0, 0.6, None, 4)]
    )
    assert both == Measurement(2, 64, 100.0, 0.5, None, 4)
    with pytest.raises(InputError, match="2 reports of 2 sizes"):
        averaged([Measurement(2, 64, 90.0), Measurement(3, 64, 90.0)])
    job = running("a", 0).measured(both).measured(Measurement(2, 64, 80.0, at_s=9))
    late = job.measured(Measurement(2, 64, 70.0, at_s=5))
    assert [each.throughput for each in late.measurements] == [80.0]
    with pytest.raises(InputError, match="throughput > 0"):
        Measurement(2, 64, 0.0)


def test_a_policy_of_the_user_s_is_one_class():
    class FirstOnly(Policy):
        def decide(self, snapshot):
            first = snapshot.waiting[0]
            return Decision({first.name: Share(1, first.batch)})

    found = FirstOnly().decide(on_one_node(1, (Job("a", JobRequest(), 0),)))
    assert found["a"].workers == 1


def test_the_policy_in_the_documentation_works():
    text = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    try:
        exec(code, {})
        jobs = tuple(Job(f"job-{at}", JobRequest(), at) for at in range(3))
        assert workers("halves", *jobs, gpus=8) == {"job-0": 2, "job-1": 2, "job-2": 0}
    finally:
        POLICIES.remove("halves")
