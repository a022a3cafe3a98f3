"""One contract for every code: a new one is tested by registering it."""

import tracemalloc

import numpy as np
import pytest

from garfield.attacks import ATTACKS
from garfield.coding import CODES, make_code
from garfield.core.errors import BoundError, ConfigError, DecodingError, InputError, UnknownName

every_code = pytest.mark.parametrize("name", sorted(CODES))
every_attack = pytest.mark.parametrize("attack", sorted(ATTACKS))

N, F, D = 15, 2, 50  # r = 5 divides 15


def secret():
    return np.random.default_rng(7)


def gradients(n=N, d=D, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def encoded(code, of):
    return [code.encode(j, (of[k] for k in code.computed_by(j))) for j in range(code.n)]


def noisy(rows, liars, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    said = list(rows)
    for j in liars:
        lie = rows[j] + scale * rng.standard_normal(len(rows[j]))
        said[j] = lie.astype(rows[j].dtype)
    return said


def same(code, found, expected):
    """Bit for bit where the code promises it."""
    if code.name == "repetition":
        return found.tobytes() == expected.tobytes()
    return np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.fixture(params=sorted(CODES))
def code(request):
    return make_code(request.param, N, F)


def test_every_gradient_is_computed_by_r_workers_and_every_worker_computes_r(code):
    computed = [code.computed_by(worker) for worker in range(N)]
    assert all(len(set(gradients)) == code.r for gradients in computed)
    assert (np.bincount(np.concatenate(computed), minlength=N) == code.r).all()


def test_a_row_is_of_the_dtype_and_length_that_the_code_says(code):
    for row in encoded(code, gradients()):
        assert row.dtype == code.dtype
        assert row.shape == (code.numbers * D,)


@pytest.mark.parametrize(("n", "f", "r"), [(1, 0, 0), (9, 0, 0), (9, 1, 3), (9, 1, 9), (12, 1, 4)])
@every_code
def test_without_lies_the_mean_of_all_gradients_comes_out(name, n, f, r):
    code, G = make_code(name, n, f, r), gradients(n)
    decoded = code.decode(encoded(code, G), secret=secret())
    np.testing.assert_allclose(decoded.mean, G.mean(axis=0, dtype=np.float64), atol=2e-7)
    assert decoded.liars == {}


@every_attack
def test_under_every_attack_the_result_is_that_without(code, attack):
    honest = encoded(code, gradients())
    expected = code.decode(honest, secret=secret()).mean
    average = lambda rows: np.mean(rows, axis=0)  # noqa: E731
    for first in (0, 4, N - F):
        liars = range(first, first + F)
        truth = np.array([row for j, row in enumerate(honest) if j not in liars])
        lies = ATTACKS[attack].rows(
            truth, f=F, rng=np.random.default_rng(first), own=[honest[j] for j in liars],
            defence=average,
        )  # fmt: skip
        rows = list(honest)
        for j, lie in zip(liars, lies, strict=True):
            rows[j] = lie if lie is not None and np.isfinite(lie).all() else None  # as received
        decoded = code.decode(rows, secret=secret())
        assert same(code, decoded.mean, expected)
        assert set(decoded.liars) <= set(liars)


@pytest.mark.parametrize("liars", [{0}, {3, 4}, {0, 14}, {7, 12}])
def test_liars_are_named_with_a_reason(code, liars):
    decoded = code.decode(noisy(encoded(code, gradients()), liars), secret=secret())
    assert set(decoded.liars) == liars
    assert all(decoded.liars.values())


@pytest.mark.parametrize("silent", [{0}, {3, 4}, {0, 14}])
def test_silent_workers_are_erasures(code, silent):
    honest = encoded(code, gradients())
    rows = [None if j in silent else row for j, row in enumerate(honest)]
    decoded = code.decode(rows, secret=secret())
    assert same(code, decoded.mean, code.decode(honest, secret=secret()).mean)
    assert decoded.liars == {}


def test_one_may_be_silent_while_another_lies(code):
    honest = encoded(code, gradients())
    rows = noisy(honest, {6})
    rows[5] = None
    decoded = code.decode(rows, secret=secret())
    assert same(code, decoded.mean, code.decode(honest, secret=secret()).mean)
    assert set(decoded.liars) == {6}


@every_code
def test_with_r_of_3f_plus_1_f_may_lie_and_f_more_be_left_out(name):
    code, G = make_code(name, 21, 2, 7), gradients(21)
    honest = encoded(code, G)
    rows = noisy(honest, {1, 2})
    rows[3] = rows[4] = None
    decoded = code.decode(rows, secret=secret())
    assert same(code, decoded.mean, code.decode(honest, secret=secret()).mean)
    assert set(decoded.liars) == {1, 2}


@pytest.mark.parametrize("liars", [{0, 1, 2}, {0, 1, 2, 3, 4}, {1, 6, 11}, set(range(10))])
def test_more_liars_than_f_are_reported(code, liars):
    with pytest.raises(DecodingError, match="f=2"):
        code.decode(noisy(encoded(code, gradients()), liars), secret=secret())


def test_a_gradient_of_zeros_is_no_lie(code):
    decoded = code.decode(encoded(code, np.zeros((N, D), np.float32)), secret=secret())
    assert not decoded.mean.any()
    assert decoded.liars == {}


def test_decoding_leaves_the_rows_alone_and_makes_no_copy_of_them(code):
    rows = encoded(code, gradients(d=300_000))
    rows = noisy(rows, {2, 9})
    for row in rows:
        row.flags.writeable = False
    code.decode(rows, secret=secret())  # what is loaded once stays
    tracemalloc.start()
    try:
        code.decode(rows, secret=secret())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * rows[0].nbytes  # of 15: the result, and blocks of columns


@pytest.mark.parametrize(
    ("n", "f", "r", "text"),
    [
        (15, 2, 3, r"r >= 5 \(2f \+ 1\) to undo f=2"),
        (15, 8, 0, "r=17 .* there are 15"),
        (5, 1, 15, "r=15 .* there are 5"),
    ],
)
@every_code
def test_numbers_that_cannot_be_decoded_are_refused(name, n, f, r, text):
    with pytest.raises(BoundError, match=text):
        make_code(name, n, f, r)


@every_code
def test_numbers_that_make_no_sense_are_refused(name):
    for n, f, r in [(0, 0, 0), (5, -1, 0), (5, 1, -3), (5, 1, -1)]:
        with pytest.raises(ConfigError, match="needs n >= 1"):
            make_code(name, n, f, r)
    with pytest.raises(UnknownName, match="Did you mean cyclic"):
        make_code("cyclical", 9, 1)


def test_rows_that_are_not_n_of_one_length_are_refused(code):
    rows = encoded(code, gradients())
    for wrong in (rows[:-1], [*rows[:-1], rows[-1][:-2]], [None] * N):
        with pytest.raises(InputError):
            code.decode(wrong, secret=secret())
