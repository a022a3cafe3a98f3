"""Means are sums divided once: to the last bit, on every instruction set and number of threads."""

import warnings

import numpy as np
import pytest

from garfield.gars import parse
from garfield.kernels import isas, parallel, read, set_isa
from garfield.kernels.kinds import torch_everywhere

ROWS = np.array([[1.0], [4.0], [7.0]])
MEANS = {"average": 0, "mda": 0, "monna": 0, "centered-clipping": 1, "nnm+mda": 0, "caf": 0}


@pytest.fixture(params=isas())
def every_isa(request):
    set_isa(request.param)
    yield
    set_isa(None)


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 33, 70_001])
@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_1_4_and_7_is_4(name, d, dtype):
    rows = np.repeat(ROWS, d, axis=1).astype(dtype)
    assert (parse(name)(rows, f=MEANS[name]) == 4.0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MEANS)
def test_so_it_is_on_the_path_of_devices(name, dtype):
    torch = pytest.importorskip("torch")
    rows = torch.tensor(ROWS, dtype=getattr(torch, dtype))
    with torch_everywhere():
        assert float(parse(name)(rows, f=MEANS[name])[0]) == 4.0


@pytest.mark.parametrize("name", ["multi-krum", "multi-krum(m=3)"])
def test_the_chosen_rows_of_krum_are_divided_once(name):
    """Its m = n - f - 2 best rows are 1, 4 and 7 here."""
    rows = np.array([[1.0], [4.0], [7.0], [4e5], [-4e5], [9e5]])
    assert parse(name)(rows, f=1)[0] == 4.0


@pytest.mark.usefixtures("every_isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 11, 64, 65])
def test_an_average_is_the_sum_divided_by_n_in_double(n, dtype):
    rows = np.random.default_rng(n).standard_normal((n, 70_003)).astype(dtype)
    expected = np.zeros(rows.shape[1])
    for row in rows:
        expected += row.astype(np.float64)
    try:
        for threads in (1, 2, 3):
            parallel.set_threads(threads)
            found = parse("average")(rows)
            assert np.array_equal(found, (expected / n).astype(dtype)), f"{threads=}"
    finally:
        parallel.set_threads(None)


def test_an_average_of_the_largest_numbers_does_not_overflow():
    largest = np.finfo(np.float64).max
    assert parse("average")(np.full((7, 3), largest))[0] == largest
    assert parse("average")(np.full((5, 3), 1e-300))[0] == 1e-300


def test_weights_that_differ_are_not_taken_for_equal():
    rows, _ = read(np.array([[1.0], [2.0], [4.0]]))
    assert rows.weighted_sum(np.array([0.25, 0.25, 0.5]))[0] == 2.75
    assert rows.weighted_sum(np.array([1 / 6, 1 / 6, 1 / 6]))[0] == pytest.approx(7 / 6)
    assert rows.weighted_sum(np.zeros(3))[0] == 0.0


@pytest.mark.parametrize("tau", [None, 1e-300, 1.0, 1e30])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e60])
def test_centered_clipping_warns_of_nothing_where_a_row_equals_its_reference(scale, tau):
    rows = np.random.default_rng(0).standard_normal((17, 5)) * scale
    rows[:3] = rows[0]
    rule = parse("centered-clipping") if tau is None else parse(f"centered-clipping(tau={tau})")
    with warnings.catch_warnings(), np.errstate(divide="raise", over="raise", invalid="raise"):
        warnings.simplefilter("error")
        found = rule(rows, f=3, reference=rows[0].copy())
    assert np.isfinite(found).all()
