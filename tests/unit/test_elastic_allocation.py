"""The greedy equals an integer program: equation 4.1 given to PuLP."""

import numpy as np
import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.elastic_solver import solved_by_pulp
from garfield.elastic.policy.allocation import Runs, fill, objective, two_sided

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PuLP 4 will rename


@st.composite
def problems(draw):
    count = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low = rng.integers(0, 4, count)
    high = low + rng.integers(0, 16, count)
    now = rng.integers(0, 20, count)
    worth = np.round(rng.random(count), draw(st.sampled_from([1, 6])))  # with ties and without
    penalty = np.round(rng.random(count), 1)
    gpus = int(low.sum()) + draw(st.integers(0, 80))
    return low, now, high, worth, penalty, gpus


@settings(max_examples=25)
@given(problems())
def test_the_greedy_is_as_good_as_the_integer_program(problem):
    _is_as_good_as_pulp(*problem)


@pytest.mark.heavy
@settings(max_examples=400)
@given(problems())
def test_the_greedy_is_as_good_as_the_integer_program_in_hundreds_of_cases(problem):
    _is_as_good_as_pulp(*problem)


def _is_as_good_as_pulp(low, now, high, worth, penalty, gpus):
    found = fill(low, two_sided(low, now, high, worth, penalty), gpus)
    assert found.sum() == min(gpus, high.sum())
    assert (low <= found).all()
    assert (found <= high).all()
    best = solved_by_pulp(low, now, high, worth, penalty, gpus)
    assert objective(found, now, worth, penalty) == pytest.approx(
        objective(best, now, worth, penalty), abs=1e-6
    )


def test_values_that_differ_by_rounding_are_a_tie():
    low = np.zeros(2, dtype=int)
    runs = Runs(np.array([0, 1]), np.array([0.3, 0.1 + 0.2]), np.array([4, 4]))
    assert fill(low, runs, 4).tolist() == [4, 0]


def test_pulp_carries_its_solver():
    assert pulp.PULP_CBC_CMD(msg=False).available()
