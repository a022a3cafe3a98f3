"""How the split_best benchmark chooses settings, reads its raw timings, and judges planners."""

import json
import math
from dataclasses import asdict

import pytest

from benchmarks.split_best import PLANNERS, seconds_left, settings, some
from benchmarks.split_timings import (
    CutTime,
    Setting,
    Timings,
    append,
    read,
    read_file,
    representative,
    tolerance,
    verdict,
)
from garfield.core.errors import ConfigError
from garfield.split.planner import Costs, Situation, choose, distinct_cuts

SETTING = Setting("alexnet", "uint8", 128, 64.0)
FORWARD = (0.004, 0.0, 0.001, 0.005)  # the second layer neither takes time nor changes the size
SITUATION = Situation(
    layer_bytes=(80_000, 80_000, 20_000, 10_000),
    input_bytes=600_000,
    stored_bytes=150_000.0,
    batch=128,
    bandwidth_bps=64e6,
    freeze=3,
    costs=Costs(FORWARD, FORWARD, 0.001),
)


def lines(*records):
    return [json.dumps(each) for each in records]


def plan(**more):
    told = {"kind": "plan", "setting": asdict(SETTING), "situation": asdict(SITUATION)}
    return {**told, "cuts": distinct_cuts(SITUATION), **more}


def timed(split, *seconds, at_least_s=None):
    told = {"kind": "timed", "setting": asdict(SETTING), "split": split, "seconds": seconds}
    return {**told, "at_least_s": at_least_s}


def timings(*records):
    return read(lines(plan(), *records))[SETTING]


def test_there_are_forty_settings_with_bandwidths_scaled_as_their_batches_are():
    found = settings()
    assert len(found) == len(set(found)) == 40
    assert {each.batch for each in found} <= set(range(128, 257))
    assert {each.stored_as for each in found} == {"float32", "uint8", "jpeg"}
    # batches of 2000 at 1 Gbps
    assert Setting("alexnet", "uint8", 128, 64.0) in found
    assert Setting("alexnet", "float32", 192, 96.0) in found
    assert all(2 <= each.mbps <= 1000 for each in found)


def test_a_part_of_the_settings_is_counted_from_one():
    found = settings()
    assert some(found, "2-3") == found[1:3]
    assert some(found, "40") == found[39:]
    assert some(found, None) == found
    for wrong in ("0-3", "5-4", "1-41", "x"):
        with pytest.raises(ConfigError, match="within 1-40"):
            some(found, wrong)


def test_a_split_is_timed_as_the_cut_that_it_was_merged_into():
    cuts = distinct_cuts(SITUATION)
    assert cuts == [0, 1, 3, 4]
    assert [representative(cuts, split) for split in range(5)] == [0, 1, 1, 3, 4]


def test_a_time_is_the_mean_of_all_visits_with_its_standard_error():
    time = timings(timed(1, 1.5, 2.5), timed(1, 2.0, 4.0, 5.0, 3.0)).times[1]
    assert (time.mean_s, time.visits) == (3.0, 2)
    assert time.deviation == pytest.approx(1 / math.sqrt(3) / 3)  # of 2, 3 and 4
    assert timings(timed(1, 1.5, 2.5)).times[1].deviation == math.inf


def test_a_visit_that_was_broken_off_tells_only_the_least():
    """The iterations before the slow one would make the mean too short."""
    time = timings(timed(1, 0.1, at_least_s=5.0)).times[1]
    assert (time.is_bound, time.mean_s) == (True, 5.0)
    assert timings(timed(1, at_least_s=5.0), timed(1, 4.0, 6.0)).times[1].seconds == [4.0, 6.0]


@pytest.mark.parametrize(
    ("spread", "allowed"),
    [(0.0, 0.05), (0.03, pytest.approx(0.06 * math.sqrt(2))), (0.2, 0.10)],
)
def test_five_percent_or_two_deviations_of_the_ratio_are_allowed_but_never_above_ten(
    spread, allowed
):
    # two pairs of means 1 ± spread have a standard error of spread
    times = [CutTime([1 - spread] * 2 + [1 + spread] * 2, 1) for _ in range(2)]
    assert tolerance(*times) == allowed


def test_a_planner_is_right_within_tolerance_of_the_best_timed_cut():
    chosen = representative(distinct_cuts(SITUATION), choose(SITUATION, "adaptive").split)
    assert chosen == 3  # 80 kB of 128 samples are more than 8 MB
    for seconds, right in ((1.04, True), (1.06, False)):
        found = timings(timed(0, 9.0), timed(1, *[1.0] * 4), timed(3, *[seconds] * 4))
        judged = verdict(SETTING, found, "adaptive")
        assert (judged.chosen, judged.best, judged.is_right) == (3, 1, right)
        assert judged.ratio == pytest.approx(seconds)
    bound = timings(timed(1, 1.0, 1.0), timed(3, 1.0, at_least_s=4.0))
    judged = verdict(SETTING, bound, "adaptive")
    assert (judged.is_right, judged.is_bound, judged.ratio) == (False, True, 4.0)


def test_what_is_near_the_best_or_chosen_is_visited_until_it_is_known_well():
    steady = [1.0] * 4
    far, near = timed(0, 3.0, 3.0), timed(4, 1.1, 1.1)
    found = timings(far, timed(1, *steady), timed(3, *steady), near)
    assert found.unsettled(["adaptive"]) == [4]
    noisy = timings(far, timed(1, *steady), timed(3, 1.0, 1.0, 2.0, 2.0), timed(4, *steady))
    assert noisy.unsettled(["adaptive"]) == [3]  # far from the best, but chosen
    assert noisy.unsettled([]) == []
    bursts = timings(far, timed(1, *steady), timed(3, 0.5, 1.5, 0.5, 1.5), timed(4, *steady))
    assert bursts.unsettled(["adaptive"]) == []
    tired = timings(*[timed(3, 1.0, 1.0), timed(3, 2.0, 2.0)] * 3)
    assert tired.unsettled(["adaptive"]) == []


def test_raw_timings_are_read_again_but_for_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "results" / "raw.jsonl"
    append(path, "machine", cpus=2)
    append(path, "plan", SETTING, situation=asdict(SITUATION), cuts=[0, 1, 3, 4])
    append(path, "timed", SETTING, split=3, seconds=[1.5], warm_up_s=3.0, at_least_s=None)
    with path.open("a") as raw:
        raw.write('{"kind": "timed", "setti')
    found = read_file(path)[SETTING]
    assert found.situation == SITUATION
    assert found.times[3].seconds == [1.5]
    assert not found.finished
    assert read_file(tmp_path / "none") == {}


def test_a_new_plan_takes_the_old_one_s_place_and_leaves_the_timed_cuts():
    other = asdict(SITUATION) | {"bandwidth_bps": 1e6}
    found = read(lines(plan(), plan(situation=other, cuts=[0, 4]), timed(3, 1.0)))[SETTING]
    assert found.situation.bandwidth_bps == 1e6
    assert found.cuts == (0, 1, 3, 4)
    assert found.chosen("adaptive") == 4
    assert {found.chosen(name) for name in PLANNERS} <= set(found.cuts)


def test_time_left_goes_by_settings_of_the_same_model_that_are_done():
    left = [Setting("alexnet", "uint8", 128, 3.2)] * 2
    assert seconds_left(left, {SETTING: Timings(finished=True, took_s=50.0)}) == 100.0
    assert seconds_left(left, {SETTING: Timings(took_s=50.0)}) == seconds_left(left, {})
