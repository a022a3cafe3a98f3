"""LiuBei's filters: what they let through, on numbers worked out by hand."""

from math import inf

import numpy as np
import pytest

from garfield.filters import Coefficients, coefficient, farthest, period, smoothness


def test_the_bound_on_models_is_the_formula_at_the_last_gather():
    # γ‖g‖ = 0.5, T = 4, 10 workers, 2 of them lying, 3 steps after the gather:
    # 0.5 · ((3·4 + 2)(10 − 2) / (4·2) + 2·3) = 0.5 · (14 + 6)
    assert farthest(0.5, since=3, period=4, n_w=10, f_w=2) == pytest.approx(10.0)


def test_models_may_differ_more_the_longer_ago_the_gather_was():
    bounds = [farthest(1.0, since=t, period=5, n_w=20, f_w=3) for t in range(5)]
    np.testing.assert_allclose(np.diff(bounds), 2.0)


def test_more_lying_workers_mean_a_tighter_bound():
    bounds = [farthest(1.0, since=0, period=5, n_w=20, f_w=f) for f in range(1, 9)]
    assert bounds == sorted(bounds, reverse=True)


def test_without_lying_workers_the_bound_is_finite_and_that_of_one():
    with_none = farthest(1.0, since=1, period=5, n_w=20, f_w=0)
    assert with_none == farthest(1.0, since=1, period=5, n_w=20, f_w=1)
    assert with_none < inf


def test_a_coefficient_is_the_change_of_the_gradient_over_the_step():
    now, before = np.array([3.0, 4.0]), np.zeros(2)
    assert coefficient(now, before, 0.5) == pytest.approx(10.0)


def test_without_a_step_only_the_same_gradient_is_believed():
    same, other = np.ones(3), np.zeros(3)
    assert coefficient(same, same, 0.0) == 0.0
    assert coefficient(same, other, 0.0) == inf


def test_the_first_coefficient_has_nothing_to_be_measured_against():
    assert Coefficients(n_ps=4, f_ps=1).accept(1e9)


def test_the_limit_is_the_smallest_value_that_the_honest_share_does_not_exceed():
    seen = Coefficients(n_ps=4, f_ps=1)
    for k in (8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0):
        seen.accept(k)
    assert seen.limit == 6.0  # 6 of 8 are at most that
    assert seen.accept(6.0)
    assert not seen.accept(6.1)


def test_of_honest_coefficients_the_share_of_lying_servers_is_refused():
    rng = np.random.default_rng(0)
    seen = Coefficients(n_ps=4, f_ps=1)
    coefficients = enumerate(rng.lognormal(size=5000))
    refused = [not seen.accept(k, f"server-{i % 4}") for i, k in coefficients]
    assert np.mean(refused[100:]) == pytest.approx(0.25, abs=0.03)


def test_a_server_that_is_asked_more_often_does_not_own_the_quantile_that_judges_it():
    """It grows a little each time: by itself it would take the limit along, as far as it likes."""
    seen = Coefficients(n_ps=4, f_ps=1)
    for i in range(39):
        seen.accept(1.0, f"server-{i % 3}")
    passed = [seen.accept(1.0 + 0.01 * i, "server-3") for i in range(1, 500)]
    assert seen.limit == 1.0
    assert not any(passed)


def test_without_lying_servers_only_a_new_record_is_refused():
    seen = Coefficients(n_ps=3, f_ps=0)
    assert [seen.accept(k) for k in (1.0, 1.0, 2.0, 2.0, 1.5)] == [True, True, False, True, True]


def test_an_infinite_coefficient_is_refused_and_does_not_move_the_limit_for_good():
    seen = Coefficients(n_ps=4, f_ps=1)
    for _ in range(8):
        seen.accept(1.0)
    assert not seen.accept(inf)
    assert seen.limit == 1.0


def test_what_is_long_past_is_forgotten():
    seen = Coefficients(n_ps=4, f_ps=1, remembered=4)
    for k in (100.0, 100.0, 100.0, 100.0, 1.0, 1.0, 1.0, 1.0):
        seen.accept(k)
    assert seen.limit == 1.0


def test_the_smoothness_of_a_parabola_is_its_curvature():
    start = np.array([3.0, 0.0], np.float32)
    assert smoothness(lambda x: 7.0 * x, start, rate=0.1) == pytest.approx(7.0, rel=1e-5)


def test_smoothness_is_measured_along_the_first_step():
    curvatures = np.array([2.0, 50.0])  # the start lies on the first axis
    found = smoothness(lambda x: curvatures * x, np.array([1.0, 0.0], np.float32), rate=0.01)
    assert found == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("curvature", "rate", "steps"),
    [(1.0, 0.01, 33), (4.0, 0.05, 1), (100.0, 0.5, 1), (0.0, 0.1, 1000), (1e-9, 0.1, 1000)],
)
def test_the_period_is_at_least_one_step_and_bounded_on_flat_ground(curvature, rate, steps):
    assert period(curvature, rate) == steps


def test_a_model_at_rest_is_flat():
    assert smoothness(lambda x: 0 * x, np.ones(3, np.float32), rate=0.1) == 0.0


def test_the_bound_for_one_lying_worker_is_the_formula_too():
    # 1 · ((3·5 + 2)(20 − 1) / (4·1) + 2·0)
    assert farthest(1.0, since=0, period=5, n_w=20, f_w=1) == pytest.approx(80.75)


@pytest.mark.parametrize(("remembered", "of_each"), [(1, 1), (3, 1), (4, 2), (50, 17)])
def test_of_each_server_its_part_of_what_is_remembered_counts(remembered, of_each):
    """A record stands until that many of the same server have come after it."""
    named = {} if remembered == 50 else {"remembered": remembered}  # fifty, unless said otherwise
    seen = Coefficients(n_ps=3, f_ps=0, **named)
    seen.accept(9.0, "server-0")
    for _ in range(of_each - 1):
        seen.accept(1.0, "server-0")
        seen.accept(1.0, "server-1")
        seen.accept(1.0, "server-2")
        assert seen.limit == 9.0
    for _ in range(60):
        seen.accept(2.0, "server-1")
    assert seen.limit == 9.0
    seen.accept(1.0, "server-0")
    assert seen.limit == 2.0


def test_smoothness_is_measured_downhill():
    def gradient(x):
        return np.where(x < 1.0, 2.0, 10.0) * (x - 1.0) + 5.0  # flatter below the start

    assert smoothness(gradient, np.ones(1, np.float32), rate=0.1) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    ("curvature", "rate", "steps"),
    [(1 / 3003, 2.0, 500), (1.0, 1 / 3003, 1000), (2.0, 1 / 6060, 1000), (1.0, 1 / 2998.5, 999),
     (1.0, 1 / 2251.5, 750), (0.5, 1 / 1350.75, 900)],
)  # fmt: skip
def test_the_period_is_one_over_three_l_times_the_rate_up_to_the_longest(curvature, rate, steps):
    assert period(curvature, rate) == steps


def test_fifty_are_remembered_unless_something_else_is_said():
    seen = Coefficients(n_ps=1, f_ps=0)
    for k in (100.0, *[1.0] * 49):
        seen.accept(k)
    assert seen.limit == 100.0
    seen.accept(1.0)
    assert seen.limit == 1.0
