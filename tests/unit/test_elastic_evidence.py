"""The arithmetic behind claims: intervals, ratios of pairs, held and failed."""

import argparse
import math

import pytest

from benchmarks.elastic_claims import Claim, claims_table, near
from benchmarks.elastic_figures import FIGURES
from benchmarks.elastic_overhead import summary as overhead
from benchmarks.elastic_rescale import pause, verdicts
from benchmarks.elastic_runs import interval, paired, ratio, series_lines
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.report.console import console


def test_an_interval_is_student_s():
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.high - found.low) == (2, pytest.approx(2 * 4.30 / math.sqrt(3)))
    assert interval([5.0]).low == 5


def test_a_ratio_of_pairs_is_their_geometric_mean_and_turns_over_with_them():
    found, turned = ratio([8.0, 2.0], [2.0, 2.0]), ratio([2.0, 2.0], [8.0, 2.0])
    assert (found.mean, turned.mean) == (pytest.approx(2), pytest.approx(0.5))
    assert found.low == pytest.approx(1 / turned.high)


def test_a_number_held_if_ours_is_within_a_quarter_of_it():
    assert [near("x", 100, here).held for here in (74, 76, 124, 126)] == [False, True, True, False]


def test_claims_are_marked(capsys):
    claims = [Claim("one", 45, 43.75, True), Claim("two", "yes", "no", False)]
    console(markup=True).print(claims_table(claims))
    told = capsys.readouterr().out
    assert told.index("held") < told.index("failed")


def test_policies_are_paired_on_the_same_jobs_and_the_first_seed_has_a_series():
    workload = WorkloadSettings("fixed", 3, length_s=600.0)
    runs = paired(workload, ClusterSettings(gpus=8), ("static", "era"), seeds=2, every_s=120.0)
    for one, other in zip(runs.of["static"], runs.of["era"], strict=True):
        names = [sorted(each.truth.name for each in run.finished) for run in (one, other)]
        assert names[0] == names[1]
    assert {line["policy"] for line in series_lines(runs)} == {"static", "era"}
    assert runs.of["static"][1].points == ()
    assert [line["policy"] for line in runs.lines(jobs=3)] == ["static", "era"]


@pytest.mark.heavy
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_simulated_and_judged(name):
    found = FIGURES[name](argparse.Namespace(seeds=2, rescale_s=30.0))
    assert found.summary
    assert found.claims


def test_a_pause_is_the_time_between_steps_of_different_groups():
    def line(time, generation, pid=1):
        return {"time": time, "generation": generation, "pid": pid}

    steps = [line(1.0, 1), line(2.0, 1), line(2.6, 2), line(2.7, 2), line(5.7, 3, pid=2)]
    assert pause(steps, 2.1, steps[2]) == pytest.approx(0.6)
    assert pause(steps, 2.1, steps[4]) == pytest.approx(0.6 + 3.0)  # by way of a group between
    assert pause(steps, 0.5, steps[1]) == 0


def test_goals_of_rescaling_are_told_by_the_medians_of_all_changes():
    def lines(engine, *pauses):
        return [{"engine": engine, "size": "20 M", "pause_s": each} for each in pauses]

    found = [*lines("in-process", 0.2, 0.3, 0.9), *lines("torchrun, tuned", 1.2, 1.6)]
    told = verdicts([*found, *lines("torchrun, defaults", 40.0)])
    assert [words.split()[-1] for words in told] == ["met.", "missed.", "met."]
    assert "median pause 0.30 s, longest 0.90 s" in told[0]
    assert "133 times shorter than torchrun, defaults" in told[2]


def test_what_a_step_takes_longer_is_told_without_the_extremes_and_with_the_thread():
    pairs = [(1.02, 1.0)] * 16 + [(9.0, 1.0)] * 2 + [(1.0, 9.0)] * 2  # two bursts of noise each
    elastic_s = sum(elastic for elastic, _ in pairs)
    found = overhead(pairs, thread_s=0.005 * elastic_s)
    assert found["percent"] == pytest.approx(2.0 + 0.5)
    assert (found["thread_percent"], found["plain_ms"]) == (pytest.approx(0.5), 1000.0)
