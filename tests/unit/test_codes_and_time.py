"""Codes against liars and time: whoever is late, the liar-free mean comes out or nothing does.

Every code, every set of late workers and of liars at small n, up to the symmetry of the code;
lies that are noise, that are large, and that conspire: the rows of other gradients, chosen so
that as many honest rows as possible fit them.
"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest

from garfield.coding import CODES, CyclicCode, RepetitionCode, cyclic, make_code
from garfield.coding.cyclic import fourier, project
from garfield.coding.locator import Locator
from garfield.core.errors import BoundError, DecodingError, InputError
from tests.marks import heavy_but

D = 3


def gradients(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, D)).astype(np.float32)


def encoded(code, of):
    return [code.encode(j, (of[k] for k in code.computed_by(j))) for j in range(code.n)]


def decode(code, rows):
    return code.decode(rows, secret=np.random.default_rng(7))


def subsets(of, most):
    return [set(s) for size in range(most + 1) for s in combinations(of, size)]


def codes_of(name, n):
    """Every code that n workers allow."""
    for f in range(n):
        for r in range(2 * f + 1, n + 1):
            try:
                yield make_code(name, n, f, r)
            except BoundError:
                continue  # r does not divide n


def up_to_symmetry(code, silent, liars):
    """Whether no rotation of the workers (cyclic code) gives a case that is looked at before."""
    if code.name == "repetition":  # any exchange of a group's workers: the first ones are late
        groups = [range(g, g + code.r) for g in range(0, code.n, code.r)]
        kinds = [[2 * (j in silent) + (j in liars) for j in group] for group in groups]
        return kinds == sorted((sorted(kind, reverse=True) for kind in kinds), reverse=True)
    turned = [
        (sorted((j + turn) % code.n for j in silent), sorted((j + turn) % code.n for j in liars))
        for turn in range(code.n)
    ]
    return (sorted(silent), sorted(liars)) == min(turned)


@cache
def shares(name, n, r):
    """(gradient, worker, numbers) what of each gradient is in each row."""
    code = make_code(name, n, 0, r)
    units = np.eye(n, dtype=np.float32)
    return np.array([encoded(code, units[:, k : k + 1]) for k in range(n)])


def other_codeword(code, others):
    """What is added to all rows when gradients change so that these workers do not notice."""
    of = shares(code.name, code.n, code.r)
    if not others:
        return 10 * of.sum(axis=0)
    seen = of[:, others].reshape(code.n, -1).T
    blind = np.linalg.svd(seen)[2][np.linalg.matrix_rank(seen, tol=1e-9) :]
    return None if not len(blind) else np.einsum("k,kjc->jc", 10 * blind.sum(axis=0), of)


def lies(code, honest, liars, silent):
    """Several ways to lie: the rows that the liars send, by worker."""
    rng = np.random.default_rng(len(liars) + 31 * len(silent))
    other = encoded(code, gradients(code.n, seed=9))
    yield {j: honest[j] + rng.standard_normal(len(honest[j])) for j in liars}
    yield {j: np.full_like(honest[j], -100.0) for j in liars}
    yield {j: other[j] for j in liars}
    left = [j for j in range(code.n) if j not in liars | silent]
    blamed = max(1, code.r - len(liars) - len(silent))  # no fewer can be outvoted
    for first in range(0, len(left), 2):
        victims = {left[(first + k) % len(left)] for k in range(blamed)}
        moved = other_codeword(code, [j for j in left if j not in victims])
        if moved is not None:
            yield {j: honest[j] + np.repeat(moved[j], D) for j in liars}


def refusals(code, silent, liars):
    """How many of the lies end in an error; all others must be undone, and blame no one else."""
    honest = encoded(code, gradients(code.n))
    truth = decode(code, honest).mean
    refused = 0
    for said in lies(code, honest, liars, silent):
        rows = [None if j in silent else row for j, row in enumerate(honest)]
        for j, lie in said.items():
            rows[j] = lie.astype(code.dtype)
        try:
            decoded = decode(code, rows)
        except DecodingError:
            refused += 1
            continue
        assert set(decoded.liars) <= liars, f"{code}, silent {silent}, liars {liars}"
        exact = decoded.mean.tobytes() == truth.tobytes()
        near = code.name == "cyclic" and np.abs(decoded.mean - truth).max() <= 1e-10
        assert exact or near, f"{code}, silent {silent}, liars {liars}"
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("n", heavy_but([3, 4, 5, 6, 7], 3, 4, 5, 6))
@pytest.mark.parametrize("name", sorted(CODES))
def test_whoever_is_late_it_is_the_mean_without_liars_or_an_error(name, n):
    for code in codes_of(name, n):
        for silent in subsets(range(n), min(n - 1, code.f + 1)):
            for liars in subsets(set(range(n)) - silent, code.f):
                if not liars or not up_to_symmetry(code, silent, liars):
                    continue
                refused = refusals(code, silent, liars)
                borne = len(silent) + len(liars) <= code.f or 2 * code.f + len(silent) < code.r
                assert not (borne and refused), f"{code}, silent {silent}, liars {liars}"


def test_two_late_workers_beside_two_liars_who_conspire_are_refused():
    code = CyclicCode(7, 2)
    honest, other = encoded(code, gradients(7)), encoded(code, gradients(7, seed=1))
    for silent in subsets(range(7), 2)[-21:]:
        for liars in subsets(set(range(7)) - silent, 2)[-10:]:
            rows = [None if j in silent else row for j, row in enumerate(honest)]
            for j in liars:
                rows[j] = other[j]
            with pytest.raises(DecodingError, match=r"With 2 silent, r=5 undoes 0 lies"):
                decode(code, rows)


@pytest.mark.parametrize(
    ("n", "f", "r", "silent", "undone"),
    [(15, 3, 9, 1, 3), (15, 3, 9, 3, 2), (15, 3, 11, 3, 3), (15, 2, 6, 1, 2), (15, 2, 7, 3, 1)],
)
def test_an_odd_number_of_late_workers_beside_f_liars(n, f, r, silent, undone):
    """f lies are undone if r >= 2f + 1 + silent, and fewer are beside fewer digits of the code."""
    code, of = CyclicCode(n, f, r), gradients(n)
    honest = encoded(code, of)
    truth = of.mean(axis=0, dtype=np.float64)
    for first in range(n):
        rows = [None if (j - first) % n < silent else row for j, row in enumerate(honest)]
        liars = [(first + silent + 2 * k) % n for k in range(f)]
        for count in range(f + 1):
            for j in liars[:count]:
                rows[j] = honest[j] + 1.0
            if count > undone:
                with pytest.raises(DecodingError, match=rf"{silent} silent, .* {undone} lies"):
                    decode(code, rows)
                continue
            decoded = decode(code, rows)
            np.testing.assert_allclose(decoded.mean, truth, atol=1e-10)
            assert set(decoded.liars) == set(liars[:count])


@pytest.mark.parametrize("silent", [{3}, {3, 4}, {0, 11}])
def test_lies_quieter_than_the_truth_are_found_beside_late_workers(silent):
    """Leaving out the loudest, which is tried last, would find none of these liars."""
    code = CyclicCode(21, 2, 7)
    honest = encoded(code, gradients(21))
    for liars in ({8, 15}, {5, 6}, {1, 20}):
        rows = [None if j in silent else row for j, row in enumerate(honest)]
        for j in liars:
            rows[j] = 1e-3 * honest[j]
        decoded = decode(code, rows)
        np.testing.assert_allclose(decoded.mean, decode(code, honest).mean, atol=1e-10)
        assert set(decoded.liars) == liars


def test_too_many_late_workers_are_refused_even_if_all_others_fit():
    """f liars among the rows left could have made them fit."""
    code = CyclicCode(7, 2)
    rows = encoded(code, gradients(7))
    rows[0] = rows[1] = rows[4] = None
    with pytest.raises(DecodingError, match=r"3 of 7 workers are silent.* r=5 bears 2 silent"):
        decode(code, rows)


def test_a_group_of_whom_too_few_are_heard_is_not_believed():
    code = RepetitionCode(5, 2)
    rows = encoded(code, gradients(5))
    rows[0] = rows[1] = None
    rows[2] = rows[3] = rows[4] + 1
    with pytest.raises(DecodingError, match=r"3 answered, and no vector was sent by 3"):
        decode(code, rows)


@pytest.mark.parametrize("share", [3e-16, 1e-15, 3e-15, 1e-14, 1e-13])
@pytest.mark.parametrize(("n", "f"), [(18, 3), (50, 10), (50, 15)])
def test_liars_who_hide_behind_rounding_get_nobody_honest_blamed(n, f, share):
    """Ten neighbours can add to their rows what thirty others see less of than of rounding."""
    code, of = CyclicCode(n, f), gradients(n)
    rows = encoded(code, of)
    space = code._fourier[: n - code.r + 1]
    unseen = space.T @ np.linalg.svd(space[:, 2 * f :].T)[2][-1].conj()
    size = share * np.linalg.norm(rows) / np.linalg.norm(unseen[2 * f :])
    for j in range(f):
        lie = size * unseen[j]
        rows[j] = rows[j] + np.repeat([lie.real, lie.imag], D)
    for seed in range(5):
        try:
            decoded = code.decode(rows, secret=np.random.default_rng(seed))
        except DecodingError:
            continue
        assert set(decoded.liars) <= set(range(f))
        assert np.abs(decoded.mean - of.mean(axis=0, dtype=np.float64)).max() < 1e-6


def test_liars_whose_lies_are_plain_are_named_among_fifty_workers():
    code, of = CyclicCode(50, 10), gradients(50)
    rows = encoded(code, of)
    for j in range(10):
        rows[j] = -rows[j]
    assert set(decode(code, rows).liars) == set(range(10))


@pytest.mark.parametrize("name", sorted(CODES))
def test_who_has_proved_to_be_faulty_leaves_fewer_to_lie(name):
    code = make_code(name, 5, 2)
    honest = encoded(code, gradients(5))
    rows = list(honest)
    rows[0] = rows[3] = None  # one sent garbage, the other is late
    rows[4] = rows[4] + 1
    with pytest.raises(DecodingError):
        decode(code, rows)
    decoded = code.decode(rows, secret=np.random.default_rng(7), proven=1)
    np.testing.assert_allclose(decoded.mean, decode(code, honest).mean, atol=1e-10)
    assert set(decoded.liars) == {4}
    rows[2] = rows[2] - 1
    with pytest.raises(DecodingError, match="f=1"):
        code.decode(rows, secret=np.random.default_rng(7), proven=1)
    with pytest.raises(InputError, match="proven=3 workers are faulty, and fewer are silent"):
        code.decode(rows, secret=np.random.default_rng(7), proven=3)


@pytest.mark.parametrize("name", sorted(CODES))
def test_where_more_have_proved_to_be_faulty_than_f_the_last_row_is_believed(name):
    code, G = make_code(name, 3, 1, 3), gradients(3)
    rows = [None, encoded(code, G)[1], None]
    with pytest.raises(DecodingError):
        decode(code, rows)  # two are late, and the third may lie
    decoded = code.decode(rows, secret=np.random.default_rng(7), proven=2)
    np.testing.assert_allclose(decoded.mean, G.mean(axis=0, dtype=np.float64), atol=2e-7)


def test_liars_are_looked_for_in_one_projection_then_in_four_and_in_sixteen(monkeypatch):
    """Where rounding hides them in the first, more may show them; in vain if too many lied."""
    code, looked = CyclicCode(7, 2), []

    def noted(rows, secret, count=1):
        looked.append(count)
        return project(rows, secret, count)

    monkeypatch.setattr(cyclic, "project", noted)
    rows = encoded(code, gradients(7))
    decode(code, rows)
    assert looked == [1]
    for j in range(3):
        rows[j] = rows[j] + 10.0 * (j + 1)
    with pytest.raises(DecodingError):
        decode(code, rows)
    assert looked == [1, 1, 4, 16]


def test_a_row_is_absurd_that_is_so_in_one_projection_alone():
    locator = Locator(fourier(7), 5, 2)
    seen = fourier(7)[:3].T @ np.ones((3, 2))
    seen[4] = 1e200, 0.0
    kept, liars = locator.locate(seen, set())
    assert (kept, liars) == ([0, 1, 2, 3, 5, 6], [4])
