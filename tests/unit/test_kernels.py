"""The primitives under the rules: exact, deterministic, safe from threads and processes."""

import multiprocessing
import os
import threading

import numpy as np
import pytest

from garfield import GARS, InputError, set_threads
from garfield.core.errors import ConfigError
from garfield.kernels import algebra, networks, parallel, read
from garfield.kernels.geometry import Geometry
from tests.references import is_sorting_network, sq_dist


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((17, 100_001)).astype(np.float32)


# -- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 13))
def test_the_network_sorts_every_input(n):
    assert is_sorting_network(networks.sorting(n), n)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 33, 40, 70])
def test_pruned_networks_bring_the_wanted_ranks_in_place(n):
    x = np.random.default_rng(n).standard_normal((n, 200))
    ranked = np.sort(x, axis=0)
    for f in {0, 1, (n - 1) // 2}:
        if n <= 2 * f:
            continue
        np.testing.assert_array_equal(run(networks.median(n), x)[n // 2], ranked[n // 2])
        middle = run(networks.trimmed(n, f), x)[f : n - f]
        np.testing.assert_array_equal(np.sort(middle, axis=0), ranked[f : n - f])


def run(network, x):
    x = x.copy()
    for i, j, kind in network:
        low, high = np.minimum(x[i], x[j]), np.maximum(x[i], x[j])
        x[i] = x[i] if kind == networks.ONLY_MAX else low
        x[j] = x[j] if kind == networks.ONLY_MIN else high
    return x


def test_pruning_saves_steps():
    assert len(networks.median(17)) < len(networks.sorting(17))
    assert len(networks.trimmed(17, 3)) < len(networks.sorting(17))


@pytest.mark.parametrize("n", [2, 3, 16, 31, 32, 33, 34, 64, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_statistics_are_exact_in_registers_and_beyond(n, dtype):
    x = np.random.default_rng(n).integers(-9, 9, (n, 1037)).astype(dtype)
    rows, _ = read(x)
    f = (n - 1) // 2
    ranked = np.sort(x.astype(np.float64), axis=0)
    np.testing.assert_array_equal(rows.median(), np.median(x, axis=0))
    np.testing.assert_allclose(rows.trimmed_mean(f), ranked[f : n - f].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(rows.mean_near_median(n), x.mean(axis=0), atol=1e-5)


# -- distances ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 14))
@pytest.mark.parametrize("d", [1, 15, 16, 1000, 1024, 40_003])
def test_distances_are_those_of_the_definition(n, d):
    x = np.random.default_rng(n).standard_normal((n, d)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [[sq_dist(a, b) for b in wide] for a in wide]
    np.testing.assert_allclose(read(x)[0].sq_dists(), expected, rtol=1e-5)


def test_distances_are_right_where_norms_cancel():
    """float32 |x|²+|y|²−2xy errs by 2,000 times the distance on rows of 100 ± 1e-3."""
    x = (100 + 1e-3 * np.random.default_rng(1).standard_normal((7, 50_000))).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [[sq_dist(a, b) for b in wide] for a in wide]
    np.testing.assert_allclose(read(x)[0].sq_dists(), expected, rtol=1e-6)


def test_distances_of_huge_rows_are_taken_in_double():
    x = np.random.default_rng(2).standard_normal((5, 100)).astype(np.float32)
    x[4] = 3e38
    dists = read(x)[0].sq_dists()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(dists[4, :4], [sq_dist(wide[4], y) for y in wide[:4]], rtol=1e-6)
    np.testing.assert_allclose(dists[0, 1], sq_dist(wide[0], wide[1]), rtol=1e-6)


def test_distances_to_a_point_and_lengths_agree_with_the_definition(rows):
    wide, point = rows.astype(np.float64), rows.mean(axis=0)
    view, _ = read(rows)
    to_point = [sq_dist(x, point.astype(np.float64)) for x in wide]
    np.testing.assert_allclose(view.sq_dists_to(point), to_point, rtol=1e-9)
    np.testing.assert_allclose(view.sq_norms(), (wide**2).sum(axis=1), rtol=1e-9)


def test_mixed_rows_answer_as_if_they_had_been_made(rows):
    mix = np.random.default_rng(3).dirichlet(np.ones(17), size=9)
    made, _ = read((mix @ rows.astype(np.float64)).astype(np.float32))
    mixed = read(rows)[0].mixed(mix)
    point = rows[3]
    np.testing.assert_allclose(mixed.sq_dists(), made.sq_dists(), rtol=1e-4)
    np.testing.assert_allclose(mixed.sq_dists_to(point), made.sq_dists_to(point), rtol=1e-5)
    np.testing.assert_allclose(mixed.median(), made.median(), atol=1e-6)
    np.testing.assert_allclose(mixed.trimmed_mean(2), made.trimmed_mean(2), atol=1e-6)
    np.testing.assert_allclose(mixed.matrix(), made.matrix(), atol=1e-6)
    np.testing.assert_allclose(mixed.columns(np.arange(5)), made.columns(np.arange(5)), atol=1e-6)
    weights = np.random.default_rng(4).dirichlet(np.ones(9))
    np.testing.assert_allclose(mixed.weighted_sum(weights), made.weighted_sum(weights), atol=1e-6)
    known = algebra.mixed_sq_dists(read(rows)[0].sq_dists(), mix)
    np.testing.assert_allclose(known, made.sq_dists(), rtol=1e-4)


def test_a_row_may_be_added_to_mixed_rows(rows):
    mix = np.random.default_rng(5).dirichlet(np.ones(17), size=4)
    made, _ = read((mix @ rows.astype(np.float64)).astype(np.float32))
    more, same = read(rows)[0].mixed(mix).with_row(rows[0]), made.with_row(rows[0])
    np.testing.assert_allclose(more.sq_dists(), same.sq_dists(), rtol=1e-4)
    np.testing.assert_allclose(more.median(), same.median(), atol=1e-6)


def test_the_sum_may_be_written_over_one_of_the_rows(rows):
    mine = rows[0].copy()
    view, _ = read([mine, *rows[1:]])
    weights = np.full(17, 1 / 17)
    expected = view.weighted_sum(weights)
    np.testing.assert_array_equal(view.weighted_sum(weights, out=mine), expected)


def test_only_distances_are_known_of_a_geometry():
    with pytest.raises(ConfigError, match="distances alone"):
        Geometry(np.zeros((3, 3))).median()


# -- threads and processes ------------------------------------------------------------------------


def test_the_same_bits_come_out_on_any_number_of_threads(rows):
    results = []
    try:
        for count in (1, 2, 5):
            set_threads(count)
            results.append([GARS[name](rows, f=3) for name in ("multi-krum", "median", "bulyan")])
    finally:
        set_threads(None)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_many_threads_may_aggregate_at_once(rows):
    expected = GARS["multi-krum"](rows, f=3)
    results = [None] * 16

    def work(i):
        results[i] = GARS["multi-krum"](rows, f=3)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(results, [expected] * len(results))


def aggregate_in_child(rows, queue):
    queue.put(GARS["geometric-median"](rows, f=3))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_it_works_in_a_new_process(rows, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=aggregate_in_child, args=(rows, queue))
    child.start()
    result = queue.get(timeout=60)
    child.join(60)
    np.testing.assert_array_equal(result, GARS["geometric-median"](rows, f=3))


def test_it_works_after_a_fork_that_left_the_threads_behind(rows):
    expected = GARS["median"](rows, f=3)  # makes the pool of threads
    child = os.fork()
    if child == 0:
        same = np.array_equal(GARS["median"](rows, f=3), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_error_in_one_part_reaches_the_caller():
    def work(lo, hi):
        if lo:
            raise InputError(f"at {lo}")

    with pytest.raises(InputError, match="at "):
        parallel.over_columns(work, 5 * parallel.PART)


def test_at_least_one_thread_is_asked_for():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        set_threads(0)
