"""What a controller decides, without any cluster: records, reports, garbage, decisions."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError
from garfield.core.files import as_json
from garfield.elastic.control import (
    Decider,
    JobHealth,
    JobRecord,
    Periods,
    Phase,
    Timetable,
    Verdict,
    WorkerCapacity,
    examined,
    record_of,
    submitted,
    with_reports,
)
from garfield.elastic.policy import POLICIES, JobRequest, Node, Share
from garfield.elastic.policy.decision import Change
from garfield.elastic.policy.decision_log import replayed
from tests.elastic_snapshots import drawn, snapshots

FOUR = (Node("here", 4),)
GB = 2**30


def running(workers=2, at_s=10.0, **request):
    return submitted("a", JobRequest(**request), [], 16, 0.0).given(Share(workers, 64), at_s)


def report(**told):
    base = {"state": "training", "generation": 1, "step": 30, "workers": 2, "batch": 64}
    measured = {"time": 1100.0, "throughput": 200.0, "cpu": 0.5, "rss_bytes": GB}
    return {**base, **measured, **told}


def records_of(snapshot):
    return [JobRecord(job) for job in snapshot.jobs]


# a job's life


def test_queueing_and_completion_count_all_times_without_workers():
    waiting = submitted("a", JobRequest(), [], 16, 100.0)
    assert (waiting.phase, waiting.queueing_s(130.0)) == (Phase.WAITING, 30.0)
    first = waiting.given(Share(2, 64), 140.0)
    assert (first.phase, first.started_s, first.queueing_s(900.0)) == (Phase.RUNNING, 140.0, 40.0)
    suspended = first.given(Share(0, 64), 200.0)
    assert (suspended.phase, suspended.queueing_s(210.0)) == (Phase.SUSPENDED, 50.0)
    again = suspended.given(Share(4, 64), 220.0)
    done = again.ended(Phase.FINISHED, 300.0)
    assert (done.phase, done.completion_s(), done.queueing_s(900.0)) == (
        Phase.FINISHED,
        200.0,
        60.0,
    )
    assert (done.started_s, done.job.workers, done.is_active) == (140.0, 0, False)
    assert again.completion_s() is None


def test_a_decision_that_changes_nothing_leaves_what_was_told_before():
    record = running(4).given(Share(3, 64, reason="goes on with 3"), 20.0)
    same = record.given(Share(3, 64, reason="nothing to change"), 30.0)
    assert same.why == "goes on with 3"
    assert same.given(Share(2, 64, reason="3 → 2 workers"), 40.0).why == "3 → 2 workers"


def test_a_cancelled_job_has_waited_until_it_was_cancelled():
    done = submitted("a", JobRequest(), [], 16, 0.0).ended(Phase.CANCELLED, 7.0)
    assert (done.queueing_s(100.0), done.phase, done.job.suspended) == (7.0, Phase.CANCELLED, False)


def test_jobs_arrive_in_order_and_what_can_never_run_is_refused():
    first = submitted("a", JobRequest(), [], 4, 0.0)
    second = submitted("b", JobRequest(), [first], 4, 1.0)
    assert (first.job.arrival, second.job.arrival) == (0, 1)
    with pytest.raises(ConfigError, match=r"c needs at least 5 workers, and there are 4 GPUs"):
        submitted("c", JobRequest(min_workers=5, start_workers=5), [first, second], 4, 2.0)
    with pytest.raises(ConfigError, match="a job named a already"):
        submitted("a", JobRequest(), [first], 4, 2.0)
    ended = first.ended(Phase.FAILED, 3.0)
    assert submitted("a", JobRequest(), [ended, second], 4, 4.0).job.arrival == 2


@settings(max_examples=30)
@given(snapshots())
def test_a_record_survives_its_json(snapshot):
    for record in records_of(snapshot):
        kept = [record, record.at_step(7), record.ended(Phase.FINISHED, 5.0, "done")]
        assert [record_of(json.loads(as_json(each))) for each in kept] == kept


def test_what_is_no_record_is_refused():
    told = json.loads(as_json(running()))
    for broken in ({**told, "ending": "vanished"}, {**told, "job": 3}, {**told, "new": 1}, {}):
        with pytest.raises(InputError):
            record_of(broken)


# what workers tell


def test_reports_of_one_generation_are_averaged_over_its_members():
    reports = {
        "w0": report(throughput=200.0, cpu=0.2),
        "w1": report(throughput=220.0, cpu=0.4, time=1101.0),
        "gone": report(throughput=9.0),
    }
    capacity = WorkerCapacity(cpus=0.5, memory_bytes=4 * GB)
    found = with_reports(
        running(), reports, ["w0", "w1", "starting"], began_s=1000.0, capacity=capacity
    )
    (measured,) = found.job.measurements
    assert (measured.size, measured.throughput, measured.at_s) == ((2, 64), 210.0, 101.0)
    assert measured.compute == pytest.approx(0.6)
    assert measured.memory == pytest.approx(0.25)
    assert found.farthest_step == 30


def test_only_the_newest_generation_counts_and_old_reports_replace_nothing():
    reports = {"w0": report(), "w1": report(generation=2, workers=3, throughput=300.0)}
    found = with_reports(running(), reports, ["w0", "w1"])
    assert [each.size for each in found.job.measurements] == [(3, 64)]
    later = with_reports(found, {"w0": report()}, ["w0"])
    assert [each.size for each in later.job.measurements] == [(3, 64), (2, 64)]
    old = with_reports(later, {"w0": report(time=900.0, throughput=1.0)}, ["w0"])
    assert old.job.measurements == later.job.measurements


def test_how_far_a_job_came_is_also_known_from_workers_that_ended():
    found = with_reports(running(), {"gone": report(step=70), "w0": report(step=30)}, ["w0"])
    assert found.farthest_step == 70
    assert with_reports(found, {"w1": report(step=10)}, ["w1"]).farthest_step == 70


def test_a_gpu_tells_its_use_itself_and_a_cpu_without_limit_does_not_tell_memory():
    on_gpu = with_reports(running(), {"w": report(gpu=0.7, gpu_memory=0.3)}, ["w"])
    assert on_gpu.job.measurements[0].compute == 0.7
    assert on_gpu.job.measurements[0].memory == 0.3
    on_cpu = with_reports(running(), {"w": report(cpu=1.4)}, ["w"])
    assert on_cpu.job.measurements[0].compute == 1.0
    assert on_cpu.job.measurements[0].memory is None


@pytest.mark.parametrize(
    "broken",
    [
        {"state": "waiting"},
        report(throughput=float("nan")),
        report(throughput=0.0),
        report(workers=0),
        report(workers="2"),
        report(time=None),
        report(generation="new"),
    ],
)
def test_what_is_no_measurement_is_passed_over(broken):
    found = with_reports(running(), {"w": broken}, ["w"])
    assert found.job.measurements == ()


def test_the_smallest_batch_that_did_not_fit_is_kept_for_good():
    found = with_reports(running(), {}, [], most_batch=128)
    assert found.job.oom_batch == 256
    assert with_reports(found, {}, [], most_batch=512).job.oom_batch == 256
    assert with_reports(found, {}, [], most_batch=64).job.oom_batch == 128


# garbage


def test_a_job_whose_workers_all_live_is_left_alone():
    record = running()
    assert examined(record, JobHealth(2), 50.0) == (Verdict.HEALTHY, record)


def test_a_half_failed_job_goes_on_with_the_living():
    verdict, record = examined(running(4), JobHealth(3, endings=["w2: exit code -9"]), 50.0)
    assert (verdict, record.job.workers, record.job.rescalings) == (Verdict.SHRUNK, 3, 1)
    assert "w2: exit code -9" in record.why


def test_below_its_minimum_a_job_is_reclaimed_and_comes_back_first():
    record = running(4, min_workers=2).at_step(30)
    verdict, after = examined(record, JobHealth(1), 50.0)
    assert (verdict, after.phase, after.fruitless_starts) == (Verdict.RECLAIMED, Phase.SUSPENDED, 0)
    assert after.job.suspended


def test_a_script_that_exits_at_once_is_given_up():
    record, verdicts = running(), []
    while record.is_active:
        verdict, record = examined(
            record, JobHealth(0, endings=["w0: exit code 1"]), 50.0, retries=2
        )
        verdicts.append(verdict)
        if record.is_active:
            record = record.given(Share(2, 64), 60.0)
    assert verdicts == [Verdict.RECLAIMED, Verdict.RECLAIMED, Verdict.FAILED]
    assert "failed 3 times at step 0: w0: exit code 1" in record.why


def test_a_worker_killed_for_its_memory_halves_the_batch_and_is_no_failed_start():
    record = running(1)
    for expected in (32, 16, 8, 4, 2, 1):
        verdict, record = examined(record, JobHealth(0, out_of_memory=True), 50.0, retries=0)
        assert (verdict, record.job.batch) == (Verdict.RECLAIMED, expected)
        assert f"out of memory: batch {2 * expected} → {expected}" in record.why
        record = record.given(Share(1, record.job.batch), 60.0)
    assert record.job.oom_batch == 2
    verdict, _ = examined(record, JobHealth(0, out_of_memory=True), 70.0, retries=0)
    assert verdict is Verdict.FAILED  # a single sample does not fit


def test_a_half_failed_job_that_ran_out_of_memory_goes_on_with_half_the_batch():
    verdict, record = examined(running(4), JobHealth(3, out_of_memory=True), 50.0)
    assert (verdict, record.job.workers, record.job.batch) == (Verdict.SHRUNK, 3, 32)


def test_failing_at_the_same_step_is_no_progress_and_a_later_one_is():
    record = running().at_step(500)
    for reached in (500, 500):
        verdict, record = examined(record, JobHealth(0), 50.0, retries=1)
        assert verdict is Verdict.RECLAIMED
        record = record.given(Share(2, 64), 60.0).at_step(reached)
    assert record.fruitless_starts == 1
    farther, _ = examined(record.at_step(501), JobHealth(0), 70.0, retries=1)
    same, _ = examined(record, JobHealth(0), 70.0, retries=1)
    assert (farther, same) == (Verdict.RECLAIMED, Verdict.FAILED)


def test_a_training_that_ended_is_finished_whoever_is_left():
    for alive in (0, 1, 2):
        verdict, record = examined(running(), JobHealth(alive, finished=True), 50.0)
        assert (verdict, record.phase) == (Verdict.FINISHED, Phase.FINISHED)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_a_job_never_keeps_dead_workers_nor_fewer_than_its_minimum(seed):
    rng = random.Random(seed)
    for record in records_of(drawn(rng, False, False)):
        if not record.job.workers:
            continue
        alive = rng.randint(0, record.job.workers)
        verdict, after = examined(record, JobHealth(alive), 50.0, retries=rng.randint(0, 1))
        assert after.job.workers == (alive if alive >= record.job.request.min_workers else 0)
        assert (verdict is Verdict.HEALTHY) == (alive == record.job.workers)


# decisions


def test_changes_tell_what_happens_to_whom_those_who_give_up_workers_first():
    events = []
    old = running(4).job
    old = replace(old, name="old")
    waiting = replace(submitted("new", JobRequest(), [], 4, 20.0).job, arrival=1)
    records = [JobRecord(waiting), JobRecord(old)]
    changes = Decider("era", events.append).ask("decide", records, FOUR, 240.0)
    assert [(each.name, each.change) for each in changes] == [
        ("old", Change.SHRINKS),
        ("new", Change.STARTS),
    ]
    assert [each.after.job.workers for each in changes] == [3, 1]
    assert all(each.rescales and not each.sets_batch for each in changes)
    assert [each.after.job.rounds for each in changes] == [1, 1]
    assert [each.after.job.rescalings for each in changes] == [1, 0]


def test_an_admission_counts_no_round():
    (change,) = Decider("era", [].append).ask(
        "admit", [submitted("a", JobRequest(), [], 4, 0.0)], FOUR, 0.0
    )
    assert (change.after.job.workers, change.after.job.rounds) == (2, 0)


def test_jobs_that_have_ended_get_nothing_and_are_not_looked_at():
    ended = running(4).ended(Phase.FAILED, 20.0)
    events = []
    assert Decider("era", events.append).ask("decide", [ended], FOUR, 240.0) == []
    assert events[0]["snapshot"].jobs == ()


def test_a_dry_run_tells_what_would_be_and_changes_nothing():
    events = []
    waiting = submitted("a", JobRequest(), [], 4, 0.0)
    (change,) = Decider("era", events.append, dry_run=True).ask("admit", [waiting], FOUR, 0.0)
    assert (change.after.job.workers, change.rescales) == (0, False)
    assert events[0]["decision"]["a"].workers == 2
    assert all(each.agrees for each in replayed(_as_read(events)))


@pytest.mark.parametrize("policy", tuple(POLICIES))
@settings(max_examples=15)
@given(snapshot=snapshots())
def test_every_decision_is_recorded_so_that_it_can_be_taken_again(policy, snapshot):
    events = []
    changes = Decider(policy, events.append).ask(
        "decide", records_of(snapshot), snapshot.nodes, 240.0
    )
    assert sum(each.after.job.workers for each in changes) <= snapshot.gpus
    assert [each.agrees for each in replayed(_as_read(events))] == [True]
    assert all(
        (each.after.job.workers, each.after.job.batch) == (each.share.workers, each.share.batch)
        for each in changes
    )


def test_an_unknown_policy_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean era"):
        Decider("erra", [].append)


def _as_read(events):
    return [json.loads(as_json(event)) for event in events]


# periods


def test_a_timetable_is_due_after_its_period_and_makes_up_for_nothing():
    table = Timetable(240.0, last_s=100.0)
    assert [table.is_due(at) for at in (100.0, 339.0, 340.0, 341.0, 2000.0, 2239.0)] == [
        False, False, True, False, True, False,
    ]  # fmt: skip
    assert table.due_s == 2240.0


def test_periods_are_the_thesis_s_and_must_be_positive():
    assert Periods() == Periods(120.0, 240.0, 240.0)
    with pytest.raises(ConfigError, match="decide_s"):
        Periods(decide_s=0)
