"""Profiles of the simulator: the model of a step, its fits, and the tool that fits."""

import math

import pytest

from garfield.core.errors import UnknownName
from garfield.elastic.simulator.profiles import profile, profiles, shipped
from garfield.elastic.simulator.step_time import StepTime
from tools.fit_profiles import Row, errors, fitted, never_falling, samples_to_target

MODEL = StepTime(0.05, 0.002, 0.02, 0.004, 0.2, 0.006, 2.0)


def test_one_worker_does_not_wait_for_others():
    assert MODEL.step_s(1, 1, 100) == pytest.approx(0.25)


def test_gamma_says_how_much_of_the_averaging_is_hidden():
    def at(gamma):
        return StepTime(0.05, 0.002, 0.02, 0.004, 0.2, 0.006, gamma).step_s(8, 2, 100)

    compute, sync = 0.25, 0.2 + 0.006 * 6
    assert at(1.0) == pytest.approx(compute + sync)
    assert at(2.0) == pytest.approx(math.hypot(compute, sync))
    assert at(500.0) == pytest.approx(compute, rel=2e-3)


def test_averaging_on_one_node_is_another_thing_than_on_several():
    assert MODEL.sync_s(4, 1) == pytest.approx(0.028)
    assert MODEL.sync_s(4, 2) == pytest.approx(0.212)


def test_the_fit_finds_the_coefficients_that_made_the_rows():
    rows = [
        Row(n, nodes, b, MODEL.step_s(n, nodes, b), MODEL.compute_s(b))
        for n, nodes in ((1, 1), (2, 1), (4, 1), (2, 2), (8, 2), (16, 4), (32, 8))
        for b in (8, 32, 128)
    ]
    assert errors(fitted(rows), rows)["rms_log"] < 0.002


def test_a_target_is_what_every_batch_reached_and_samples_never_fall(tmp_path):
    def write(batch, metrics):
        lines = [f"{at},{at},{metric},0,0" for at, metric in metrics]
        head = "progress,iteration,metric,grad_sqr,grad_var"
        (tmp_path / f"validation-{batch}.csv").write_text("\n".join([head, *lines]))

    write(10, [(5, 90.0), (9, 30.0), (12, 20.0)])  # an error rate: it falls
    write(100, [(1, 90.0), (2, 50.0), (4, 25.0)])
    assert samples_to_target(tmp_path) == (25.0, {10: 120, 100: 400})
    assert never_falling({1: 10, 2: 40, 4: 10, 8: 90}) == {1: 10, 2: 20, 4: 20, 8: 90}


@pytest.mark.parametrize("name", profiles())
def test_shipped_profiles_are_within_a_tenth_on_held_out_replicas_and_make_sense(name):
    assert shipped()["models"][name]["held_out"]["median_percent"] < 10
    model = profile(name)
    assert 8 <= model.base_batch < model.largest_global_batch
    for workers in (1, 2, 4, 8, 16):
        at = model.at(workers, model.largest_batch)
        assert at.memory == 1.0
        assert 0 < at.compute <= 1
        assert at.throughput > model.at(workers, model.largest_batch // 2).throughput
    efficiencies = [model.statistical_efficiency(2**power) for power in range(2, 17)]
    assert efficiencies[0] == pytest.approx(1)
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_what_was_not_profiled_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean imagenet"):
        profile("imagnet")


def test_the_source_of_the_numbers_is_shipped_with_them():
    assert "OSDI 2021" in shipped()["source"]
    assert shipped()["held_out"] == [3, 6, 10, 14, 24, 48]
