"""The simulator's arithmetic, on jobs whose times can be worked out by hand."""

import pytest

from garfield.core.errors import ConfigError, RunError, UnknownName
from garfield.elastic.policy import Decision, JobRequest, Policy, Share, parse
from garfield.elastic.simulator.cluster import nodes_of, simulate
from garfield.elastic.simulator.profiles import Profile
from garfield.elastic.simulator.settings import (
    LENGTH_S,
    ClusterSettings,
    SimulationSettings,
    WorkloadSettings,
)
from garfield.elastic.simulator.step_time import StepTime
from garfield.elastic.simulator.workload import SimulatedJob, first_batch, workload_of
from tools.calibrate_lengths import calibrated

LINEAR = Profile("linear", StepTime(0, 0.01, 0, 0, 0, 0, 1.0), 128, ((20, 1000), (2000, 4000)))
"""A worker does 100 samples a second, and workers do not disturb each other."""


def job(name="a", arrives_s=0.0, samples=20_000.0, to_target=False, **asked):
    request = JobRequest(**{"batch": 10, "learning_rate": "none", **asked})
    return SimulatedJob(name, arrives_s, LINEAR, request, samples, to_target)


class Scripted(Policy):
    """Decides as told, round by round; the last one again and again."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)
        self.seen = []

    def decide(self, snapshot):
        self.seen.append(snapshot)
        workers, batch = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return Decision({each.name: Share(workers, batch) for each in snapshot.jobs})


def run(policy, *jobs, gpus=8, **cluster):
    return simulate(policy, jobs, ClusterSettings(gpus=gpus, **cluster))


def test_a_job_alone_takes_its_samples_over_its_speed():
    outcome = run(parse("static"), job())
    summary = outcome.summary()
    assert (summary["jct_s"], summary["makespan_s"], summary["queueing_s"]) == (100, 100, 0)
    assert summary["throughput"] == pytest.approx(200)
    assert summary["cluster_utilisation"] == pytest.approx(2 / 8)
    assert (summary["gpu_utilisation"], summary["memory_utilisation"]) == (
        1,
        pytest.approx(10 / 128),
    )


def test_who_finds_no_gpus_queues_until_somebody_ends():
    outcome = run(parse("static"), job(), job("b", 30.0), gpus=3)
    assert [each.finished_s for each in outcome.finished] == [100, 200]
    assert outcome.summary()["queueing_s"] == pytest.approx(35)
    assert outcome.summary()["jct_s"] == pytest.approx((100 + 170) / 2)


def test_a_rescaled_job_stands_still_for_as_long_as_that_costs():
    grown = run(Scripted((4, 10)), job(samples=88_000.0), rescale_s=30.0)
    # 240 s at 200, 30 s at nothing, the other 40,000 at 400
    assert grown.finished[0].finished_s == pytest.approx(240 + 30 + 100)
    assert grown.finished[0].job.rescalings == 1
    batched = run(Scripted((2, 20)), job(samples=88_000.0), rebuild_s=5.0)
    assert batched.finished[0].finished_s == pytest.approx(240 + 5 + 200)
    assert batched.finished[0].job.rescalings == 0


def test_a_suspended_job_keeps_what_it_trained_and_waits():
    outcome = run(Scripted((0, 10), (2, 10)), job(samples=96_000.0), rescale_s=30.0)
    only = outcome.finished[0]
    assert only.finished_s == pytest.approx(240 + 240 + 30 + 240)
    assert only.waited_s == pytest.approx(240)


def test_policies_see_reports_as_of_the_last_look_and_nothing_else():
    policy = Scripted((2, 10))
    late = job(arrives_s=130.0, samples=1e5)
    run(policy, late, decide_s=240.0, monitor_s=120.0)
    first, second = policy.seen[:2]
    assert first.jobs[0].measurements == ()  # looked at 120 s after it started, at 250 s
    (seen,) = second.jobs[0].measurements
    assert (seen.workers, seen.batch, seen.throughput, seen.at_s) == (
        2,
        10,
        pytest.approx(200),
        370,
    )
    assert not hasattr(second.jobs[0], "samples")


def test_a_size_is_reported_once_ten_steps_were_done_there():
    slow = job(samples=1e5, batch=128)  # a step takes 1.28 s
    policy = Scripted((2, 128))
    run(policy, slow, monitor_s=12.0, decide_s=12.5)
    measured = [bool(each.jobs[0].measurements) for each in policy.seen[:3]]
    assert measured == [False, True, True]


def test_a_batch_that_does_not_fit_fails_and_is_known_to():
    policy = Scripted((2, 256), (2, 10))
    run(policy, job(samples=1e5))
    assert [each.jobs[0].oom_batch for each in policy.seen[:2]] == [None, 256]
    assert policy.seen[1].jobs[0].batch == 10


def test_to_a_target_a_sample_of_a_large_batch_counts_less():
    policy = Scripted((2, 100))  # of 200 samples: twice as many as for 20, by interpolation
    outcome = run(policy, job(samples=88_000.0, to_target=True), rebuild_s=0.0)
    assert outcome.finished[0].finished_s == pytest.approx(240 + 2 * 200)
    assert LINEAR.statistical_efficiency(200) == pytest.approx(0.5)


def test_an_end_leaves_jobs_unfinished():
    outcome = run(parse("static"), job(), job("b", samples=1e9), end_s=150.0)
    assert (len(outcome.finished), len(outcome.unfinished), outcome.ended_s) == (1, 1, 150)
    assert outcome.summary()["finished"] == 1


def test_a_time_series_tells_gpus_jobs_and_speed():
    outcome = simulate(
        parse("static"), [job(), job("b", 50.0)], ClusterSettings(gpus=8), every_s=40
    )
    assert [(p.at_s, p.gpus, p.running, p.completed) for p in outcome.points] == [
        (0, 2, 1, 0), (40, 2, 1, 0), (80, 4, 2, 0), (120, 2, 1, 1), (150, 0, 0, 2),
    ]  # fmt: skip
    # two jobs of 200 samples/s, one of them there for 30 of the 40 seconds
    assert (outcome.points[2].throughput, outcome.points[2].total_throughput) == (200, 350)
    assert (outcome.points[0].throughput, outcome.points[0].compute) == (None, None)


def test_a_point_in_a_round_tells_of_the_time_before_and_not_of_the_pause():
    outcome = simulate(
        Scripted((4, 10)), [job(samples=1e6)], ClusterSettings(gpus=8, rescale_s=30.0), every_s=60
    )
    at = {point.at_s: point for point in outcome.points}
    assert at[240.0].total_throughput == pytest.approx(200)  # two workers until then
    assert at[300.0].total_throughput == pytest.approx(400 / 2)  # four, for half of the minute
    assert at[360.0].total_throughput == pytest.approx(400)


def test_a_policy_that_starts_nobody_is_stopped():
    with pytest.raises(RunError, match="started none of 1 waiting jobs"):
        run(Scripted((0, 10)), job(samples=1e9))


def test_nodes_have_as_many_gpus_as_were_profiled():
    assert [node.gpus for node in nodes_of(10)] == [4, 4, 2]


# -- workloads ------------------------------------------------------------------------------------


def test_schedules_of_the_thesis():
    def arrivals(schedule, **more):
        return [each.arrives_s for each in workload_of(WorkloadSettings(schedule, **more))]

    assert arrivals("all-at-once", jobs=3) == [0, 0, 0]
    assert arrivals("fixed", jobs=3) == [0, 120, 240]
    many = arrivals("poisson", jobs=4000)
    assert many[-1] / 4000 == pytest.approx(240, rel=0.05)
    assert arrivals("poisson", jobs=5) == arrivals("poisson", jobs=5)
    assert arrivals("poisson", jobs=5) != arrivals("poisson", jobs=5, seed=1)


def test_a_job_begins_with_its_workload_s_own_batch_and_takes_the_calibrated_length():
    jobs = workload_of(WorkloadSettings("all-at-once", 300, models="imagenet"))
    assert {each.request.batch for each in jobs} == {100}  # of 200 validated, for two workers
    assert {each.request.max_global_batch for each in jobs} == {12800}
    lengths = [each.samples / each.profile.at(2, 100).throughput for each in jobs]
    assert sum(lengths) / 300 == pytest.approx(LENGTH_S, rel=0.05)
    assert 0.5 * LENGTH_S <= min(lengths) < max(lengths) <= 1.5 * LENGTH_S
    assert first_batch(jobs[0].profile, 0.5) == 50


def test_lengths_are_what_the_calibration_finds():
    assert calibrated() == LENGTH_S


def test_the_philly_trace_is_mapped_by_gpu_time(tmp_path):
    path = tmp_path / "philly.csv"
    rows = [
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:00:00,66.0,1,66.0,a",  # minutes
        "2017-10-09 07:10:00,7200.0,2,14400.0,a",  # 4 GPU-hours
        "2017-10-09 07:20:00,36000.0,4,144000.0,a",  # 40
        "2017-10-09 08:00:00,90000.0,8,720000.0,a",  # 200
        "2017-10-09 08:00:00,9000000.0,8,72000000.0,a",  # too long for any
        "2017-12-09 08:00:00,66.0,1,66.0,a",
    ]
    path.write_text("\n".join(rows) + "\n\n")
    found = workload_of(WorkloadSettings("trace", 4, trace=str(path)))
    assert [each.arrives_s for each in found] == [0, 600, 1200, 3600]
    models = [each.profile.name for each in found]
    assert models[0] in ("cifar10", "ncf")
    assert models[1] in ("bert", "deepspeech2")
    assert models[2:] == ["yolov3", "imagenet"]
    for each, duration in zip(found, (66, 7200, 36000, 90000), strict=True):
        speed = each.profile.at(each.request.start_workers, each.request.batch).throughput
        assert each.samples / speed == pytest.approx(duration)
    with pytest.raises(ConfigError, match="No eight hours"):
        workload_of(WorkloadSettings("trace", 5, trace=str(path)))


def test_a_workload_of_pollux_names_models_workers_and_batches(tmp_path):
    path = tmp_path / "workload.csv"
    path.write_text(
        "name,time,application,num_replicas,batch_size\n"
        "cifar10-0,107,cifar10,6,2048\nimagenet-1,50,imagenet,32,6400\n"
    )
    first, second = workload_of(WorkloadSettings("trace", 9, trace=str(path), until="target"))
    assert (first.name, first.request.start_workers, first.request.max_workers) == (
        "imagenet-1", 32, 32,
    )  # fmt: skip
    assert (second.request.batch, second.request.max_workers, second.to_target) == (341, 16, True)
    needed = dict(second.profile.samples_to_target)
    assert needed[1024] < second.samples <= needed[2048]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"schedule": "poison"}, "Did you mean poisson"),
        ({"until": "accuracy"}, "not an end of jobs"),
        ({"schedule": "trace"}, "belong together"),
        ({"trace": "x.csv"}, "belong together"),
        ({"jobs": 0}, "jobs must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(asked, told):
    with pytest.raises(ConfigError, match=told):
        WorkloadSettings(**asked)


def test_a_pool_or_a_file_that_makes_no_sense_is_refused(tmp_path):
    for models, told in (("bert:x", "name:weight"), ("", "at least one"), ("bert:0", "positive")):
        with pytest.raises(ConfigError, match=told):
            workload_of(WorkloadSettings(models=models))
    with pytest.raises(UnknownName, match="Did you mean bert"):
        workload_of(WorkloadSettings(models="brt"))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for name, told in (("x.csv", "is no trace"), ("y.csv", "cannot be read")):
        with pytest.raises(ConfigError, match=told):
            workload_of(WorkloadSettings("trace", trace=str(tmp_path / name)))
    with pytest.raises(ConfigError, match="needs at least 16 workers, and there are 8"):
        run(parse("static"), job(min_workers=16, start_workers=16))


def test_policies_are_named_with_commas_which_may_stand_inside_brackets_too():
    asked = SimulationSettings("era(model='thesis', batch=False), static,static")
    assert asked.policies == ("era(model='thesis', batch=False)", "static")
