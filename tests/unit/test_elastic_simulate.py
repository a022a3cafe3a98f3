"""`garfield elastic simulate`, and what all policies must do to whole workloads."""

import json

import pytest

from garfield.elastic.policy import POLICIES, parse
from garfield.elastic.simulator.cluster import simulate
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.elastic.simulator.workload import workload_of
from tests.command import invoke

KEYS = {
    "jct_s", "makespan_s", "queueing_s", "throughput", "cluster_utilisation", "gpu_utilisation",
    "memory_utilisation",
}  # fmt: skip


def command(out, *more):
    return invoke(
        ["elastic", "simulate", "--jobs", 6, "--gpus", 8, "--seed", 1, "--out", out, *more]
    )


@pytest.mark.slow
def test_policies_are_compared_and_every_decision_can_be_taken_again(tmp_path):
    done = command(tmp_path / "e", "--policy", "era,static,autoscaler,afs-p")
    assert (done.exit_code, done.stderr) == (0, "")
    summary = json.loads((tmp_path / "e/summary.json").read_text())
    assert list(summary) == ["era", "static", "autoscaler", "afs-p"]
    for numbers in summary.values():
        assert set(numbers) >= KEYS
        assert numbers["finished"] == 6
    left = {"time.png", "summary.png", "config.toml", "metrics.jsonl", "summary.json"}
    assert {path.name for path in (tmp_path / "e").iterdir()} == left
    again = invoke(["elastic", "replay", tmp_path / "e"])
    assert again.exit_code == 0, again.stderr
    other = invoke(["elastic", "replay", tmp_path / "e", "--policy", "static"])
    assert other.exit_code == 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_and_a_config_runs_again(tmp_path):
    words = ("--policy", "era", "--json")
    first = command(tmp_path / "a", *words)
    file = ("--config", tmp_path / "a/config.toml", "--out", tmp_path / "b", "--json")
    second = invoke(["elastic", "simulate", *file])
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert json.loads(command(tmp_path / "c", *words, "--seed", 2).stdout) != json.loads(
        first.stdout
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "erra"], "erra is not a policy. Did you mean era?"),
        (["--gpus", 0], "gpus must be at least 1, got 0"),
        (
            ["--min-workers", 9, "--start-workers", 9],
            "needs at least 9 workers, and there are 8 GPUs",
        ),
        (["--min-workers", 5], "Workers must be min ≤ start ≤ max, got 5, 2 and 16"),
        (["--models", "bart"], "bart is not a profiled model"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(tmp_path, words, told):
    refused = command(tmp_path / "e", *words)
    assert refused.exit_code == 2
    assert told in refused.stderr


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("until", ["epochs", "target"])
def test_every_policy_finishes_a_crowd_and_never_gives_what_there_is_not(name, until):
    jobs = workload_of(WorkloadSettings("all-at-once", 20, seed=3, until=until, length_s=900.0))
    seen = []
    cluster = ClusterSettings(gpus=10)
    outcome = simulate(
        parse(name), jobs, cluster, tell=lambda _, snapshot, decision: seen.append(decision.gpus)
    )
    assert len(outcome.finished) == 20
    assert max(seen) <= 10
    total = sum(each.gpu_s for each in outcome.finished)
    assert total <= 10 * outcome.ended_s * (1 + 1e-9)
    trained = sum(each.trained for each in outcome.finished)
    if until == "epochs":
        assert trained == pytest.approx(sum(each.samples for each in jobs))
    else:
        assert trained >= 0.99 * sum(each.samples for each in jobs)


def test_one_job_under_era_has_sixteen_gpus_after_four_minutes():  # Figure 4.3a
    jobs = workload_of(WorkloadSettings("all-at-once", 1, models="imagenet"))
    for name, minutes in (("era", 4), ("afs-p", 4), ("autoscaler", 16)):
        points = simulate(parse(name), jobs, ClusterSettings(), every_s=60.0).points
        assert next(point.at_s for point in points if point.gpus == 16) == 60 * minutes
