"""The same kind, dtype and device out as in; bad input is named."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

import garfield
from garfield import GARS
from garfield.gars import parse
from garfield.kernels import torch_everywhere

NAMES = (*GARS, "nnm+multi-krum", "arc+median")
ROWS = np.random.default_rng(0).standard_normal((15, 500)).astype(np.float32)
TOLERANCE = {"float64": 1e-6, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}


def rule(name):
    return parse("dnc(seed=3)" if name == "dnc" else name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("as_list", [True, False])
def test_torch_tensors_give_a_torch_tensor(name, dtype, as_list):
    rows = torch.from_numpy(ROWS).to(getattr(torch, dtype))
    result = rule(name)(list(rows) if as_list else rows, f=3)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == rows.dtype
    assert result.device == rows.device
    expected = rule(name)(rows.double().numpy(), f=3)
    np.testing.assert_allclose(result.double().numpy(), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["median", "multi-krum", "bulyan", "centered-clipping"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ">f4"])
def test_numpy_arrays_give_a_numpy_array(name, dtype):
    rows = ROWS.astype(dtype)
    result = rule(name)(rows, f=3)
    assert isinstance(result, np.ndarray)
    assert result.dtype == rows.dtype
    expected = rule(name)(rows.astype(np.float64), f=3)
    tolerance = TOLERANCE.get(rows.dtype.name)
    np.testing.assert_allclose(result.astype(np.float64), expected, atol=tolerance)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("as_list", [True, False])
def test_tensorflow_tensors_give_a_tensorflow_tensor(dtype, as_list):
    tf = pytest.importorskip("tensorflow")
    rows = tf.cast(tf.constant(ROWS), dtype)
    for name in ("median", "multi-krum", "bulyan"):
        result = rule(name)(tf.unstack(rows) if as_list else rows, f=3)
        assert isinstance(result, tf.Tensor)
        assert result.dtype == rows.dtype
        assert result.device == rows.device
        expected = rule(name)(tf.cast(rows, tf.float64).numpy(), f=3)
        np.testing.assert_allclose(
            tf.cast(result, tf.float64).numpy(), expected, atol=TOLERANCE[dtype]
        )


def test_a_tensorflow_result_is_handed_over_without_a_copy(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    rows = tf.constant(ROWS)
    monkeypatch.setattr(tf, "convert_to_tensor", lambda *_: pytest.fail("that copies"))
    for name in ("median", "multi-krum"):
        np.testing.assert_array_equal(GARS[name](rows, f=3), GARS[name](ROWS, f=3))


def test_rows_that_a_tensorflow_function_traces_are_refused():
    tf = pytest.importorskip("tensorflow")
    with pytest.raises(garfield.InputError, match=r"tf\.function .*tf\.py_function"):
        tf.function(lambda rows: GARS["median"](tf.unstack(rows), f=3), autograph=False)(ROWS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [None, np.nan, 3e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_torch_path_for_gpus_agrees_with_the_compiled_one(name, poison, dtype):
    rows = torch.from_numpy(ROWS).to(dtype).clone()
    if poison is not None and name != "average":
        rows[[2, 7]] = poison
    expected = rule(name)(rows, f=3, explain=True)
    with torch_everywhere():
        result = rule(name)(rows, f=3, explain=True)
    assert result.vector.dtype == dtype
    np.testing.assert_allclose(result.vector, expected.vector, atol=2e-6)
    assert result.trusted == expected.trusted
    assert result.set_aside == expected.set_aside


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "meamed"])
def test_the_torch_path_honours_a_presence_mask(name):
    order = np.random.default_rng(1).random(ROWS.shape).argsort(axis=0)
    present = order < np.arange(7, 7 + ROWS.shape[1]) % len(ROWS) + 1
    present[:7] = True  # 2f + 1 of every coordinate
    rows = torch.from_numpy(ROWS)
    with torch_everywhere():
        result = GARS[name](rows, f=3, mask=present)
    np.testing.assert_allclose(result, GARS[name](rows, f=3, mask=present), atol=1e-6)


def test_gradients_that_carry_a_graph_are_detached():
    rows = torch.from_numpy(ROWS).clone().requires_grad_()
    assert not GARS["median"](rows, f=3).requires_grad


def test_rows_need_not_be_contiguous():
    wide = np.asfortranarray(ROWS)
    np.testing.assert_array_equal(GARS["krum"](wide, f=3), GARS["krum"](ROWS, f=3))
    every_other = np.repeat(ROWS, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(GARS["mda"](every_other, f=3), GARS["mda"](ROWS, f=3))


def test_a_reference_may_be_of_the_callers_kind():
    rows, reference = torch.from_numpy(ROWS), torch.zeros(500)
    result = GARS["centered-clipping"](rows, f=3, reference=reference, tau=2.0)
    expected = GARS["centered-clipping"](ROWS, f=3, reference=np.zeros(500, np.float32), tau=2.0)
    np.testing.assert_allclose(result, expected, atol=1e-7)
    assert GARS["monna"](rows, f=3, reference=reference).shape == (500,)
    assert not reference.any()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        (np.zeros((3, 0), np.float32), "empty"),
        ([np.zeros(3), np.zeros(4), np.zeros(3)], r"row 1 .* shape \(4,\) where row 0 has \(3,\)"),
        (np.zeros((3, 4), np.int64), "Row 0 has dtype int64. Convert it to one of float32"),
        (torch.zeros((3, 4), dtype=torch.int32), "dtype int32"),
        (np.zeros((3, 4), complex), "dtype complex128"),
        ([np.zeros(3), np.zeros(3, np.float32)], "numpy float32 where row 0 has numpy float64"),
        ([np.zeros(3), torch.zeros(3)], "torch float32 where row 0 has numpy float64"),
        ([[1.0, 2.0], [3.0, 4.0]], "Row 0 has no arrays .* but float"),
        ([np.zeros(3), "evil", np.zeros(3)], "row 1 .* str where row 0 has numpy float64"),
        ([{"w": np.zeros(3, complex)}] * 3, "Row 0 has dtype complex128"),
        ([torch.nn.Linear(2, 2)] * 3, "but Linear"),
    ],
)
def test_what_cannot_be_aggregated_is_named(rows, message):
    with pytest.raises(garfield.InputError, match=message):
        GARS["average"](rows)


def test_a_reference_of_the_wrong_length_or_not_finite_is_refused():
    with pytest.raises(garfield.InputError, match=r"reference has length 3, but .* 500"):
        GARS["centered-clipping"](ROWS, f=1, reference=np.zeros(3))
    with pytest.raises(garfield.InputError, match="reference holds NaN"):
        GARS["centered-clipping"](ROWS, f=1, reference=np.full(500, np.nan))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((15, 499), bool), r"shape \(15, 500\), got 15 rows of \(499,\)"),
        (np.ones((14, 500), bool), r"got 14 rows"),
        (np.ones((15, 500)), "dtype float64. Pass booleans"),
    ],
)
def test_a_presence_mask_must_fit(mask, message):
    with pytest.raises(garfield.InputError, match=message):
        GARS["median"](ROWS, f=1, mask=mask)


def test_importing_is_light_and_aggregating_numpy_needs_no_framework():
    script = (
        "import sys, garfield, numpy; "
        "garfield.init('multi-krum', n=5, f=1).aggregate(numpy.eye(5)); "
        "print(sorted({'torch', 'tensorflow', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
