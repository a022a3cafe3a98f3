"""What trainings that differ by their seed come to together, and beside FL-vanilla's."""

import pytest

from benchmarks.fedgan_noniid import _compared
from benchmarks.fedgan_runs import KeptRun, averaged, curve


def run_of(fids):
    """A training that was judged every 10 of its 40 rounds, as far as it came."""
    judged = [{"round": 10 * n, "fid": fid} for n, fid in enumerate(fids, 1)]
    best = min(judged, key=lambda each: each["fid"], default={"fid": None, "round": None})
    summary = {
        "best_fid": best["fid"], "best_fid_round": best["round"], "fid": fids[-1] if fids else None,
        "modes": 7, "time_s": 3.0, "bytes_per_device": 100.0, "declared_epochs": 2.0,
        "samples": 4000, "rounds": 40,
    }  # fmt: skip
    return KeptRun({"local_steps": 5}, summary, judged, [])


def test_seeds_become_mean_and_deviation_and_what_was_never_judged_is_left_out():
    found = averaged([run_of([30.0, 20.0]), run_of([30.0, 10.0]), run_of([])])
    assert (found["seeds"], found["best_fid"], found["modes"]) == (3, 15, 7)
    assert found["best_fid_deviation"] == pytest.approx(50**0.5)
    assert averaged([run_of([])])["best_fid"] is None


def test_a_curve_goes_as_far_as_all_seeds_and_counts_iterations_and_images():
    whole, broken = run_of([30.0, 20.0, 10.0]), run_of([40.0, 30.0])
    found = curve([whole, broken])
    assert [each["round"] for each in found] == [10, 20]
    assert [each["fid"] for each in found] == [35, 25]
    assert (found[1]["iterations"], found[1]["images"]) == (100, 2000)


def test_a_gain_is_a_ratio_of_rounds_with_the_same_seed_and_none_where_it_was_not_as_good():
    found = _compared(
        {
            "neither": [run_of([30.0, 25.0, 20.0]), run_of([30.0, 10.0, 20.0])],
            "both": [run_of([20.0, 25.0, 30.0]), run_of([30.0, 20.0, 11.0])],
        }
    )
    assert found["neither"]["gain"] == 1
    both = found["both"]
    assert (both["gain"], both["reached"], both["rounds_to_vanilla"]) == (3, 1, 10)
