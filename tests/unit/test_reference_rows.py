"""A rule that trusts one of the rows trusts that one, whoever else is set aside."""

import numpy as np
import pytest

from garfield import InputError
from garfield.gars import monna

ROWS = [np.full(4, value, np.float32) for value in (0.0, 1.0, 2.0, 100.0, 101.0, 102.0, 103.0)]
NAN = np.full(4, np.nan, np.float32)


@pytest.mark.parametrize("lost", [None, NAN], ids=["missing", "not finite"])
@pytest.mark.parametrize("trusted", [2, 6])
def test_a_row_before_it_that_is_set_aside_does_not_shift_whom_one_trusts(lost, trusted):
    rows = [lost, *ROWS[1:]]
    found = monna(rows, f=3, reference=trusted)
    np.testing.assert_array_equal(found, monna(rows, f=3, reference=ROWS[trusted]))


@pytest.mark.parametrize("lost", [None, NAN], ids=["missing", "not finite"])
def test_a_reference_that_is_set_aside_itself_is_an_error_that_names_it(lost):
    with pytest.raises(InputError, match="row 6, the reference, is missing or not finite"):
        monna([*ROWS[:6], lost], f=3, reference=6)
