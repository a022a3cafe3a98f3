"""What is particular to each code: bits and groups of one, Fourier transforms of the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.coding import Code, CyclicCode, RepetitionCode
from garfield.coding.cyclic import fourier, project, weights
from garfield.core.errors import BoundError, DecodingError
from garfield.kernels.parallel import PART


def secret():
    return np.random.default_rng(7)


def gradients(n, d=20, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def encoded(code, of):
    return [code.encode(j, (of[k] for k in code.computed_by(j))) for j in range(code.n)]


# -- any code -------------------------------------------------------------------------------------


def test_a_code_of_ones_own_computes_every_gradient_2f_plus_1_times_unless_said():
    class Own(Code):
        name = "own"
        computed_by = encode = _decode = lambda self, *given: None

    assert (Own(7, 2).r, Own(7, 2, 6).r) == (5, 6)


# -- repetition -----------------------------------------------------------------------------------


def test_groups_are_neighbours_and_compute_the_same():
    code = RepetitionCode(6, 1)
    assert [list(code.computed_by(j)) for j in range(6)] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3


def test_honest_rows_of_a_group_are_equal_bit_for_bit():
    rows = encoded(RepetitionCode(9, 1), gradients(9))
    assert len({row.tobytes() for row in rows}) == 3


def test_a_gradient_buffer_may_be_used_again_for_the_next():
    code, G = RepetitionCode(3, 1), gradients(3)
    buffer = np.empty_like(G[0])

    def one_after_the_other():
        for k in code.computed_by(0):
            buffer[:] = G[k]
            yield buffer

    np.testing.assert_array_equal(code.encode(0, one_after_the_other()), (G[0] + G[1]) + G[2])


def test_the_majority_is_of_whole_rows_even_if_liars_agree_with_it_in_part():
    code, G = RepetitionCode(5, 2), gradients(5)
    rows = encoded(code, G)
    truth = rows[0].copy()
    rows[1], rows[3] = rows[1].copy(), rows[3].copy()
    rows[1][0] += 1  # true in all places but one, and not in the same
    rows[3][-1] += 1
    decoded = code.decode(rows, secret=secret())
    np.testing.assert_array_equal(decoded.mean, (truth / np.float32(5)))
    assert set(decoded.liars) == {1, 3}


def test_minus_zero_is_not_zero():
    code = RepetitionCode(3, 1)
    rows = [np.zeros(4, np.float32) for _ in range(3)]
    rows[2] = -rows[2]
    assert set(code.decode(rows, secret=secret()).liars) == {2}


def test_a_difference_beyond_the_first_piece_is_seen():
    code = RepetitionCode(3, 1)
    rows = [np.ones(1_000_003, np.float32) for _ in range(3)]
    rows[0][-1] = 2
    decoded = code.decode(rows, secret=secret())
    assert set(decoded.liars) == {0}
    assert decoded.mean[-1] == np.float32(1 / 3)


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=7, max_size=7), st.integers(0, 3))
def test_a_group_decodes_just_when_a_vector_was_sent_more_often_than_f_can_lie(votes, silent):
    code = RepetitionCode(7, 3)
    rows = [None if j < silent else np.full(3, vote, np.float32) for j, vote in enumerate(votes)]
    heard = votes[silent:]
    best = max(heard, key=heard.count)
    if heard.count(best) >= 4:
        decoded = code.decode(rows, secret=secret())
        np.testing.assert_array_equal(decoded.mean, np.float32(best / 7))
        assert len(decoded.liars) == len(heard) - heard.count(best)
    else:
        with pytest.raises(DecodingError, match=rf"{len(heard)} answered.* 4 of them"):
            code.decode(rows, secret=secret())


def test_r_must_divide_n_and_the_remedies_are_named():
    with pytest.raises(BoundError, match=r"r=3 does not divide n=10. Take r=5, or n=9 or 12"):
        RepetitionCode(10, 1, r=3)


@pytest.mark.parametrize(("n", "f", "least"), [(10, 1, 5), (18, 2, 6), (9, 1, 3), (7, 2, 7)])
def test_unless_said_r_is_the_least_that_divides_n(n, f, least):
    assert RepetitionCode(n, f).r == least


# -- cyclic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "r"), [(5, 3), (9, 3), (18, 9), (45, 11), (50, 21), (7, 7)])
def test_weights_are_as_the_paper_defines_them(n, r):
    code = CyclicCode(n, (r - 1) // 2, r)
    W, C = weights(n, code._offsets), fourier(n)
    for worker, weight in enumerate(W.T):
        np.testing.assert_array_equal(np.flatnonzero(weight), sorted(code.computed_by(worker)))
    spectrum = W @ C.conj().T  # W = [Q 1] C_L
    np.testing.assert_allclose(spectrum[:, n - r], 1, atol=1e-12)
    np.testing.assert_allclose(spectrum[:, n - r + 1 :], 0, atol=1e-12)


def test_neighbours_as_in_the_paper_cost_digits_that_spreading_keeps():
    spread, paper = CyclicCode(45, 5), CyclicCode(45, 5, neighbours=True)
    assert np.abs(spread._weights).max() < 1
    assert np.abs(paper._weights).max() > 1e5
    G = gradients(45, d=200)
    exact = G.mean(axis=0, dtype=np.float64)
    found = spread.decode(encoded(spread, G), secret=secret()).mean
    assert np.linalg.norm(found - exact) < 1e-13 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("n", "f"), [(3, 1), (9, 1), (18, 3), (45, 5), (50, 10), (50, 15), (50, 20)]
)
def test_constant_lies_of_minus_100_are_undone_up_to_50_workers(n, f):
    code, G = CyclicCode(n, f), gradients(n, seed=n)
    honest, exact = encoded(code, G), G.mean(axis=0, dtype=np.float64)
    for trial in range(5):
        rng = np.random.default_rng(trial)
        liars = rng.choice(n, f, replace=False) if trial else np.arange(f)  # the worst: neighbours
        rows = list(honest)
        for j in liars:
            rows[j] = np.full_like(rows[j], -100.0)
        decoded = code.decode(rows, secret=secret())
        assert np.linalg.norm(decoded.mean - exact) < 1e-6 * np.linalg.norm(exact)
        assert set(decoded.liars) == set(liars.tolist())


@st.composite
def _lies(draw):
    n = draw(st.integers(3, 50))
    f = draw(st.integers(1, min(12, (n - 1) // 2)))
    liars = draw(st.sets(st.integers(0, n - 1), max_size=f))
    decades = draw(st.lists(st.floats(-14, 40), min_size=f, max_size=f))
    return n, f, sorted(liars), decades


@pytest.mark.slow
@settings(max_examples=60)
@given(_lies(), st.integers(0, 2**32))
def test_lies_of_any_size_mixed_move_the_result_by_less_than_a_millionth(lies, seed):
    n, f, liars, decades = lies
    rng = np.random.default_rng(seed)
    code, G = CyclicCode(n, f), gradients(n, seed=seed)
    rows = encoded(code, G)
    for j, decade in zip(liars, decades, strict=False):
        rows[j] = rows[j] + 10.0**decade * rng.standard_normal(len(rows[j]))
    decoded = code.decode(rows, secret=secret())
    exact = G.mean(axis=0, dtype=np.float64)
    assert np.linalg.norm(decoded.mean - exact) < 1e-6 * np.linalg.norm(exact)
    assert set(decoded.liars) <= set(liars)


def test_lies_too_large_to_compute_with_are_undone():
    code, G = CyclicCode(9, 2), gradients(9)
    rows = encoded(code, G)
    rows[3], rows[4] = np.full_like(rows[3], 1.7e308), np.full_like(rows[4], -1.7e308)
    decoded = code.decode(rows, secret=secret())
    np.testing.assert_allclose(decoded.mean, G.mean(axis=0, dtype=np.float64), atol=1e-12)
    assert set(decoded.liars) == {3, 4}


def test_liars_beside_as_many_silent_workers_are_reported_and_not_fitted_away():
    code = CyclicCode(15, 2)
    rows = encoded(code, gradients(15))
    rows[0] = rows[1] = None
    rows[5], rows[9] = -rows[5], -rows[9]
    with pytest.raises(DecodingError, match=r"rows of 13 workers .* 2 silent, r=5 undoes 0 lies"):
        code.decode(rows, secret=secret())


def test_gradients_of_very_different_size_are_no_lies():
    code, G = CyclicCode(18, 3), gradients(18)
    G[0] *= 1e9
    G[7] *= 1e-9
    decoded = code.decode(encoded(code, G), secret=secret())
    np.testing.assert_allclose(decoded.mean, G.mean(axis=0, dtype=np.float64), rtol=1e-6)
    assert decoded.liars == {}


@pytest.mark.parametrize(("off", "blamed"), [(1e-2, {5}), (1e-7, set())])
def test_a_worker_that_computes_a_little_differently_is_left_out_and_blamed_if_it_shows(
    off, blamed
):
    code, G = CyclicCode(9, 1), gradients(9)
    exact = G.mean(axis=0, dtype=np.float64)
    rows = encoded(code, G)
    other = (G * np.float32(1 + off)).astype(np.float32)
    rows[5] = code.encode(5, (other[k] for k in code.computed_by(5)))
    decoded = code.decode(rows, secret=secret())
    np.testing.assert_allclose(decoded.mean, exact, atol=1e-14)  # without it, to the last digit
    assert set(decoded.liars) == blamed


def test_the_same_rows_decode_to_the_same_bits_whatever_the_secret():
    code, G = CyclicCode(18, 3), gradients(18)
    rows = encoded(code, G)
    rows[4] = -rows[4]
    found = {code.decode(rows, secret=np.random.default_rng(s)).mean.tobytes() for s in range(5)}
    assert len(found) == 1


def test_a_lie_beyond_the_first_part_of_a_long_row_is_seen():
    code, G = CyclicCode(3, 1), gradients(3, d=PART + 3)
    rows = encoded(code, G)
    assert project(rows, secret()).shape == (3, 1)  # of all parts together
    for place in (-1, PART + 2):  # the last number of the imaginary parts, and of the real ones
        lying = list(rows)
        lying[1] = rows[1].copy()
        lying[1][place] += 1.0
        decoded = code.decode(lying, secret=secret())
        assert set(decoded.liars) == {1}
        np.testing.assert_allclose(decoded.mean, G.mean(axis=0, dtype=np.float64), atol=1e-12)


def test_more_workers_than_float64_can_tell_apart_are_refused():
    with pytest.raises(BoundError, match="n=100, f=20 and r=41 needs more digits than float64"):
        CyclicCode(100, 20)
    CyclicCode(100, 5)


def test_digits_are_counted_for_f_that_lie_f_that_are_blamed_and_f_that_are_late():
    CyclicCode(54, 8, 33)
    with pytest.raises(BoundError, match="what rounding hides may grow 1e"):
        CyclicCode(54, 11, 34)
