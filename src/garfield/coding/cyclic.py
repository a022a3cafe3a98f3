"""The cyclic code: every row a combination of r gradients, decoded by Fourier transform.

Let C be the n × n inverse Fourier matrix, C_jk = exp(2πi jk / n) / √n, C_L its
first n − r + 1 rows and C_R its last r − 1. Worker j sends z_j = G W_·j, where

    W = [Q 1] C_L,   with Q such that W_kj = 0 unless worker j computes gradient k.

Row k of W is a polynomial of degree n − r at the n-th roots of unity ω^j, with
leading coefficient 1 and zeros at the n − r workers that do not compute gradient
k. So there is no system to solve: with ω = e^{2πi/n} and S_k the workers that do,

    W_kj = √n · ω^{−j} / Π_{l ∈ S_k, l ≠ j} (ω^j − ω^l)     for j in S_k.

All honest rows Z = G W lie in the row space of C_L, so Z C_Rᴴ = 0: what C_R sees
of the rows received is lies alone, and the locator (`locator.py`) finds them.
With U the workers that told the truth, any b with C_{L,U} b = e_{n−r+1} gives

    Z_U b = G [Q 1] C_{L,U} b = G 1,   the sum of all gradients; b by least squares.

To solve W_{·,U} b = 1 instead is the same in exact arithmetic and has condition
1e16. The zeros of row k of W come from column k of A, the matrix of who computes
what. The paper lets worker j compute r neighbouring gradients; then the product
above is tiny and W has entries up to 1.8e5 (n=45, f=5) and 5e12 (n=100, f=20), so that
as many digits are lost. Here the r gradients of a worker lie evenly around
the circle: any r do, and the entries of W stay near √n / r.

A row is float64, d real parts and then d imaginary ones: float32 would let the
locator mistake rounding for lies. Needs r ≥ 2f + 1 and n ≥ r, and that lies as small as
rounding cannot be made to matter (`_require_digits`); beside s silent workers it undoes
min(f, r − 1 − s − f) lies (`locator.py`). Encoding costs
O(r d), decoding two passes over the rows, O(n d), plus O(n⁴) numbers that do not
depend on d; no memory beyond the result. Chen et al., ICML 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from garfield.coding.code import Code, Decoded, code
from garfield.coding.locator import TOLERANCE, Locator
from garfield.core.errors import BoundError, DecodingError
from garfield.core.types import Floats, Indices
from garfield.kernels import read
from garfield.kernels.parallel import over_columns

Complex: TypeAlias = npt.NDArray[np.complex128]

_AMPLIFIED = 1e-6 / TOLERANCE
"""A lie of TOLERANCE is not seen, and may move the mean by so much more: no further than 1e-6."""

_PROJECTIONS = (1, 4, 16)
"""How many are looked at, until liars are found: one mostly shows them all; where many neighbours
lie at many scales, the liars that rounding hides in one show in another."""


@code("cyclic")
class CyclicCode(Code):
    """Exact to about twelve digits."""

    dtype = np.float64
    numbers = 2

    def __init__(self, n: int, f: int, r: int = 0, *, neighbours: bool = False) -> None:
        """With `neighbours`, gradients are dealt out as in the paper, at a loss of digits."""
        super().__init__(n, f, r)
        self._offsets = np.arange(self.r) if neighbours else np.arange(self.r) * n // self.r
        self._dimension = n - self.r + 1  # of the space that honest rows lie in
        self._fourier = fourier(n)
        self._weights = weights(n, self._offsets)
        self._require_digits()

    def computed_by(self, worker: int) -> Indices:
        return np.sort((worker - self._offsets) % self.n)

    def encode(self, worker: int, gradients: Iterable[Floats]) -> Floats:
        row: Any = None
        for k, gradient in zip(self.computed_by(worker), gradients, strict=True):
            if row is None:
                row = np.zeros(2 * len(gradient))
            _add(row, self._weights[k, worker], gradient)
        assert row is not None  # r is at least 1
        return np.asarray(row)

    def _decode(
        self, rows: Sequence[Floats | None], f: int, secret: np.random.Generator
    ) -> Decoded:
        honest, liars = self._located(rows, f, secret)
        b = self._combination(honest) / self.n
        halves, shares = [], []
        for j, share in zip(honest, b, strict=True):
            real, imaginary = np.split(np.asarray(rows[j]), 2)
            halves += [real, imaginary]
            shares += [share.real, -share.imag]  # the real part of share · z
        mean = read(halves)[0].weighted_sum(np.array(shares))
        return Decoded(mean, dict.fromkeys(liars, "does not fit the others' rows"))

    def _located(
        self, rows: Sequence[Floats | None], f: int, secret: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        locator = Locator(self._fourier, self.r, f)
        silent = {j for j, row in enumerate(rows) if row is None}
        for count in _PROJECTIONS[:-1]:
            with suppress(DecodingError):
                return locator.locate(project(rows, secret, count), silent)
        return locator.locate(project(rows, secret, _PROJECTIONS[-1]), silent)

    def _combination(self, workers: Sequence[int]) -> Complex:
        """b: what of each of these rows makes up the sum of all gradients."""
        wanted = np.zeros(self._dimension, dtype=np.complex128)
        wanted[-1] = 1.0
        code = self._fourier[: self._dimension, workers]
        found: Complex = np.linalg.lstsq(code, wanted, rcond=None)[0].astype(np.complex128)
        return found

    def _require_digits(self) -> None:
        """Refuse if lies that the rows do not show could move the mean by more than 1e-6.

        Liars who conspire are held by the honest rows that are believed: all n but f liars, f
        honest ones taken for liars in their place, and f late ones, neighbours at the worst. Any
        n − r + 1 rows give the sum of gradients with shares b_j = √n / Π_{l ≠ j} (ω^j − ω^l).
        """
        proof = np.arange(min(3 * self.f, self.r - 1), self.n)
        enough = proof[np.linspace(0, len(proof) - 1, self._dimension).astype(int)]
        amplified = float(np.linalg.norm(1.0 / _gaps(np.exp(2j * np.pi / self.n * enough))))
        if amplified > _AMPLIFIED:
            raise BoundError(
                f"The cyclic code with n={self.n}, f={self.f} and r={self.r} needs more digits "
                f"than float64 has: what rounding hides may grow {amplified:.0e} times, and "
                f"{_AMPLIFIED:.0e} at most is safe. Use the repetition code, fewer workers, or a "
                "larger r."
            )


def fourier(n: int) -> Complex:
    """(n, n) the inverse Fourier matrix C."""
    turns = np.outer(np.arange(n), np.arange(n)) % n  # exact, where the angle would lose digits
    return np.asarray(np.exp(2j * np.pi / n * turns) / np.sqrt(n))


def weights(n: int, offsets: Indices) -> Complex:
    """(n, n) W: gradient k's share in the row of worker k + offset, zero for all others."""
    roots = np.exp(2j * np.pi / n * np.arange(n))
    share = np.zeros((n, n), dtype=np.complex128)
    for k in range(n):
        workers = (k + offsets) % n
        share[k, workers] = np.sqrt(n) * roots[workers].conj() / _gaps(roots[workers])
    return share


def _gaps(points: Complex) -> Complex:
    """Π_{l ≠ j} (x_j − x_l) for each of the points."""
    gaps = points[:, None] - points[None, :]
    np.fill_diagonal(gaps, 1.0)
    return np.asarray(gaps.prod(axis=1))


def project(rows: Sequence[Floats | None], secret: np.random.Generator, count: int = 1) -> Complex:
    """(n, count) inner products with random vectors, drawn afresh; NaN for a silent worker's row.

    A lie that is orthogonal to them would not be seen, so nobody may foresee them.
    """
    there = [j for j, row in enumerate(rows) if row is not None]
    halves = [np.split(np.asarray(rows[j]), 2) for j in there]
    seed = int(secret.integers(2**63))

    def work(lo: int, hi: int) -> Complex:
        directions = np.random.default_rng((seed, lo)).random((count, hi - lo)) - 0.5
        part = np.empty((len(there), count), dtype=np.complex128)
        with np.errstate(over="ignore", invalid="ignore"):  # a liar's numbers may be huge
            for i, (real, imaginary) in enumerate(halves):
                # not by BLAS, which would start threads of its own inside each of ours
                part[i].real = np.einsum("ki,i->k", directions, real[lo:hi])
                part[i].imag = np.einsum("ki,i->k", directions, imaginary[lo:hi])
        return part

    seen = np.full((len(rows), count), np.nan, dtype=np.complex128)
    with np.errstate(over="ignore", invalid="ignore"):
        seen[there] = sum(over_columns(work, len(halves[0][0])))
    return seen


def _add(row: Floats, weight: complex, gradient: Floats) -> None:
    """row += weight × gradient, real parts first."""
    d = len(gradient)

    def work(lo: int, hi: int) -> None:
        part = gradient[lo:hi].astype(np.float64)
        row[lo:hi] += weight.real * part
        row[d + lo : d + hi] += weight.imag * part

    with np.errstate(over="ignore", invalid="ignore"):  # of a diverged model: found out in time
        over_columns(work, d)
