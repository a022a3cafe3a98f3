"""The primitives under the rules: exact, deterministic, safe from threads and processes."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from garfield import GARS, InputError, set_threads
from garfield.core.errors import ConfigError
from garfield.kernels import algebra, isa, isas, networks, parallel, read, set_isa
from garfield.kernels.finite import all_finite
from garfield.kernels.geometry import Geometry
from garfield.kernels.turning import copy_turned
from tests.references import is_sorting_network, sq_dist


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((17, 100_001)).astype(np.float32)


@pytest.fixture(params=isas())
def every_isa(request):
    """Runs a test once with each instruction set that this processor has."""
    set_isa(request.param)
    yield request.param
    set_isa(None)


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


@pytest.mark.usefixtures("every_isa")
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


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("n", range(2, 14))
@pytest.mark.parametrize("d", [1, 15, 16, 1000, 1024, 40_003])
def test_distances_are_those_of_the_definition(n, d):
    x = np.random.default_rng(n).standard_normal((n, d)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [[sq_dist(a, b) for b in wide] for a in wide]
    np.testing.assert_allclose(read(x)[0].sq_dists(), expected, rtol=1e-5)


@pytest.mark.usefixtures("every_isa")
def test_distances_are_right_where_norms_cancel():
    """float32 |x|²+|y|²−2xy errs by 2,000 times the distance on rows of 100 ± 1e-3."""
    x = (100 + 1e-3 * np.random.default_rng(1).standard_normal((7, 50_000))).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [[sq_dist(a, b) for b in wide] for a in wide]
    np.testing.assert_allclose(read(x)[0].sq_dists(), expected, rtol=1e-6)


@pytest.mark.usefixtures("every_isa")
def test_distances_of_huge_rows_are_taken_in_double():
    x = np.random.default_rng(2).standard_normal((5, 100)).astype(np.float32)
    x[4] = 3e38
    dists = read(x)[0].sq_dists()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(dists[4, :4], [sq_dist(wide[4], y) for y in wide[:4]], rtol=1e-6)
    np.testing.assert_allclose(dists[0, 1], sq_dist(wide[0], wide[1]), rtol=1e-6)


@pytest.mark.usefixtures("every_isa")
def test_distances_to_a_point_and_lengths_agree_with_the_definition(rows):
    wide, point = rows.astype(np.float64), rows.mean(axis=0)
    view, _ = read(rows)
    to_point = [sq_dist(x, point.astype(np.float64)) for x in wide]
    np.testing.assert_allclose(view.sq_dists_to(point), to_point, rtol=1e-9)
    np.testing.assert_allclose(view.sq_norms(), (wide**2).sum(axis=1), rtol=1e-9)


@pytest.mark.usefixtures("every_isa")
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


@pytest.mark.usefixtures("every_isa")
def test_a_row_may_be_added_to_mixed_rows(rows):
    mix = np.random.default_rng(5).dirichlet(np.ones(17), size=4)
    made, _ = read((mix @ rows.astype(np.float64)).astype(np.float32))
    more, same = read(rows)[0].mixed(mix).with_row(rows[0]), made.with_row(rows[0])
    np.testing.assert_allclose(more.sq_dists(), same.sq_dists(), rtol=1e-4)
    np.testing.assert_allclose(more.median(), same.median(), atol=1e-6)


@pytest.mark.usefixtures("every_isa")
def test_the_sum_may_be_written_over_one_of_the_rows(rows):
    mine = rows[0].copy()
    view, _ = read([mine, *rows[1:]])
    weights = np.full(17, 1 / 17)
    expected = view.weighted_sum(weights)
    np.testing.assert_array_equal(view.weighted_sum(weights, out=mine), expected)


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("d", [1, 7, 31, 64, 1023, 40_003])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_those_of_the_definition_wherever_rows_begin(d, dtype):
    rng = np.random.default_rng(d)
    rows = [rng.standard_normal(d + 5).astype(dtype)[i % 6 : i % 6 + d] for i in range(17)]
    weights = rng.standard_normal(17) * (rng.random(17) < 0.8)
    expected = weights @ np.array(rows, dtype=np.float64)
    np.testing.assert_allclose(read(rows)[0].weighted_sum(weights), expected, atol=1e-5)


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("n", [2, 5, 17, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_do_not_depend_on_where_rows_begin_or_on_their_type(n, dtype):
    rng = np.random.default_rng(n)
    rows = [rng.standard_normal(3_005).astype(dtype)[i % 6 : i % 6 + 2_999] for i in range(n)]
    wide = np.array(rows, dtype=np.float64)
    expected = [[sq_dist(a, b) for b in wide] for a in wide]
    view, _ = read(rows)
    np.testing.assert_allclose(view.sq_dists(), expected, rtol=1e-5)
    np.testing.assert_allclose(view.sq_dists_to(rows[1]), np.array(expected)[1], rtol=1e-9)


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_found_anywhere(dtype, value):
    vector = np.full(1_001, np.finfo(dtype).max, dtype=dtype)
    assert all_finite(vector)
    for at in (0, 1, 15, 16, 500, 999, 1_000):
        bad = vector.copy()
        bad[at] = value
        assert not all_finite(bad), at
        assert not all_finite(bad[at:]), at


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("n", [3, 17, 40])
def test_order_statistics_of_what_arrived_are_those_of_the_definition(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, 2_003)).astype(np.float32)
    present = rng.random((n, 2_003)) < 0.9
    present[0] = True
    expected = np.nanmedian(np.where(present, x, np.nan), axis=0)
    np.testing.assert_allclose(read(x, present)[0].median(), expected, atol=1e-6)


@pytest.mark.usefixtures("every_isa")
def test_axes_are_turned_round_exactly():
    source = np.random.default_rng(6).standard_normal((37, 3, 50)).astype(np.float32)
    target = np.empty((50, 3, 37), dtype=np.float32)
    copy_turned(source, (2, 1, 0), target)
    np.testing.assert_array_equal(target, source.transpose(2, 1, 0))


def test_only_distances_are_known_of_a_geometry():
    with pytest.raises(ConfigError, match="distances alone"):
        Geometry(np.zeros((3, 3))).median()


# -- instruction sets -----------------------------------------------------------------------------


def test_the_widest_instruction_set_is_used_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("GARFIELD_ISA", raising=False)
    set_isa(None)
    assert isa() == isas()[0]
    for name in isas():
        set_isa(name)
        assert isa() == name
    set_isa(None)
    assert isa() == isas()[0]


@pytest.mark.parametrize("name", isas())
def test_the_environment_chooses_the_instruction_set(name):
    script = "from garfield import kernels; print(kernels.isa())"
    environment = {**os.environ, "GARFIELD_ISA": name}
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == name


def test_an_instruction_set_that_the_processor_lacks_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=f"is mmx, but this processor has {', '.join(isas())}"):
        set_isa("mmx")
    monkeypatch.setenv("GARFIELD_ISA", "altivec")
    with pytest.raises(ConfigError, match=r"GARFIELD_ISA is altivec, .* or unset GARFIELD_ISA"):
        set_isa(None)


# -- threads and processes ------------------------------------------------------------------------


@pytest.mark.usefixtures("every_isa")
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
