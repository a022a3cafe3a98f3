"""Turning axes round while copying: numpy's transpose is the reference."""

from itertools import permutations

import numpy as np
import pytest

from garfield.kernels import aligned
from garfield.kernels.turning import copy_turned

SHAPES = [(1, 1), (5, 3), (16, 16), (33, 70), (5, 5, 3, 64), (3, 40, 17), (8, 8, 16, 33)]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_order_of_axes_is_that_of_numpy(shape):
    source = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for order in permutations(range(len(shape))):
        expected = source.transpose(order)
        target = np.full(expected.shape, np.nan, np.float32)
        copy_turned(source, order, target)
        np.testing.assert_array_equal(target, expected)


def test_nothing_is_written_beyond_the_target():
    source = np.ones((17, 33), np.float32)
    room = np.zeros(3 + source.size + 3, np.float32)
    copy_turned(source, (1, 0), room[3:-3].reshape(33, 17))
    assert room.sum() == source.size
    assert not room[:3].any()
    assert not room[-3:].any()


@pytest.mark.parametrize("count", [2, 15, 16, 1_000_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aligned_memory_starts_on_a_line(count, dtype):
    found = aligned.empty(count, dtype)
    assert found.shape == (count,)
    assert found.dtype == dtype
    assert found.ctypes.data % 64 == 0
    assert aligned.can_be_given(found)
    assert not aligned.can_be_given(found[1:])
