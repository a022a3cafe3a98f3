"""The second dimension: batch sizes, accumulation, learning rates."""

import pytest

from garfield.elastic.policy import Job, JobRequest, Measurement, parse
from garfield.elastic.policy.batch_size import (
    Thresholds,
    largest_batch,
    power_of_two,
    predicted_memory,
    scaled_batch,
    share,
)
from garfield.elastic.policy.learning_rate import factor
from garfield.elastic.policy.snapshot import on_one_node


def job(compute=0.5, memory=0.2, workers=2, batch=64, **asked):
    found = Job("a", JobRequest(**asked), 0).given(workers, batch)
    return found.measured(Measurement(workers, batch, 100.0, compute, memory))


def scaled(of, workers=None):
    return scaled_batch(of, workers or of.workers, Thresholds())


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [
        (0.5, 0.2, 128),
        (0.84, 0.5, 128),
        (0.85, 0.2, 64),  # compute is used well
        (0.5, 0.8, 64),  # memory is
        (0.5, 0.51, 64),  # both are not, but twice the batch would not fit
        (None, 0.2, 64),
        (0.5, None, 64),
    ],
)
def test_a_batch_is_doubled_where_both_are_underused_and_it_will_fit(compute, memory, expected):
    assert scaled(job(compute, memory)) == expected


def test_what_was_measured_at_another_size_does_not_count():
    assert scaled(job().given(3, 64)) == 64


def test_bounds_hold_for_a_worker_and_for_all_together():
    assert scaled(job(max_batch=127)) == 64
    assert scaled(job(max_global_batch=1024), workers=8) == 128
    assert scaled(job(max_global_batch=1023), workers=8) == 64
    assert scaled(job(scale_batch=False)) == 64
    assert (
        Job("a", JobRequest(max_global_batch=640), 0).measured(Measurement(2, 64, 1.0)).most_workers
        == 10
    )  # the global bound limits workers too


def test_out_of_memory_halves_and_lowers_the_maximum_for_good():
    failed = job(batch=256, memory=0.1).out_of_memory(256)
    assert scaled(failed) == 128
    later = failed.given(2, 128).measured(Measurement(2, 128, 100.0, 0.1, 0.1, at_s=9))
    assert scaled(later) == 128
    assert scaled(later.out_of_memory(512)) == 128  # a larger one that failed changes nothing
    assert scaled(job().out_of_memory(64)) == 64  # never below what was asked for


def test_memory_is_predicted_in_proportion_and_by_a_line_once_two_batches_are_known():
    one = job(memory=0.3)
    assert predicted_memory(one, 128) == pytest.approx(0.6)
    two = one.measured(Measurement(4, 128, 100.0, 0.5, 0.4))
    assert predicted_memory(two, 256) == pytest.approx(0.6)
    assert predicted_memory(Job("a", JobRequest(), 0), 128) is None


def test_a_fixed_global_batch_is_kept_by_accumulation():
    fixed = Job("a", JobRequest(fixed_global_batch=1024, batch=64), 0)
    for workers, accumulation, batch in (
        (1, 16, 64),
        (2, 8, 64),
        (3, 6, 57),
        (16, 1, 64),
        (20, 1, 52),
    ):
        found = share(fixed, workers, 64)
        assert (found.accumulation, found.batch) == (accumulation, batch)
        assert 0 <= workers * found.accumulation * found.batch - 1024 < workers * accumulation
        assert found.learning_rate == 1.0
    assert (
        Job("a", JobRequest(fixed_global_batch=8, max_workers=64), 0)
        .measured(Measurement(2, 64, 1.0))
        .most_workers
        == 8
    )  # everybody has a sample


def test_with_a_fixed_global_batch_out_of_memory_means_more_accumulation():
    failed = job(fixed_global_batch=256).out_of_memory(64)
    assert largest_batch(failed, 2) == 32
    decision = parse("era").decide(on_one_node(2, (failed,)))
    assert (decision["a"].batch, decision["a"].accumulation) == (32, 4)


def test_powers_of_two():
    assert [power_of_two(n) for n in (1, 2, 3, 64, 100)] == [1, 2, 2, 64, 64]
    assert largest_batch(job(max_batch=100, powers_of_two=True), 2) == 64


@pytest.mark.parametrize(
    ("rule", "noise_scale", "expected"),
    [
        ("none", None, 1.0),
        ("linear", None, 4.0),
        ("sqrt", None, 2.0),
        ("adascale", None, 2.0),
        ("adascale", 1e9, 4.0),  # noise alone: as good as linear
        ("adascale", 0.0, 1.0),  # no noise: a larger batch tells nothing new
        ("adascale", 100.0, 1.6),
    ],
)
def test_the_learning_rate_follows_the_global_batch(rule, noise_scale, expected):
    assert factor(rule, 400, 100, noise_scale) == pytest.approx(expected, rel=1e-6)


def test_a_share_carries_the_factor_of_the_learning_rate():
    assert share(job(), 8, 128).learning_rate == 8.0
    assert share(job(learning_rate="none"), 8, 128).learning_rate == 1.0
