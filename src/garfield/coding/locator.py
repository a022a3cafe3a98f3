"""The locator: which rows of the cyclic code are false.

It sees one complex number per worker, y_j, the row's projection on a secret random
vector (or several such numbers, from as many vectors). Honest ones form a vector in
the row space of C_L. So for a set U of workers, what is left of y_U beside the row
space of C_{L,U} must vanish. If it does for the U of all who were heard but e, with s
silent, at least n − s − e − f of U are honest. If these are n − r + 1 or more, they alone
determine the codeword, which is then the true one; if they are fewer, f liars can make up
another codeword that fits U just as well, and e honest workers are blamed. So

    e ≤ min(f, r − 1 − s − f)

may be left out. Silent workers may all be honest, which is why they count beside the f;
where they are among the f, f − s lies are left to undo, and r ≥ 2f + 1 allows for as many.
Within the bound whatever way a U was found it is right once it fits, and the search may be
bold:

1.  Syndromes S_k = Σ_j y_j x_j^{n−r+1+k}, k < r − 1, with x_j = e^{−2πi j/n}, are sums over
    liars alone. Workers known to be out are zeroed in y and their terms removed by
    Forney's polynomial Γ(x) = Π (x − x_j).
2.  A polynomial of degree t that vanishes at up to t liars is in the null space of
    the Hankel matrix of the syndromes (Prony). The t workers where it is smallest
    are the suspects.
3.  If the others fit, done: suspects who fit as well are taken back, and the rest
    have lied. If not, lies differ so much in size that the small ones were lost
    in rounding: the suspect with the largest lie is out, and the search goes on.
    Failing that, it begins anew without the loudest worker, the loudest two, …

The paper's φ is the same but for step 3; it assumes exact arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from garfield.core.errors import DecodingError

TOLERANCE = 1e-12
"""What a lie may leave beside the row space, relative to the rows, without being called one."""

_ROUNDING = 1e-13
"""What rounding may leave there at the most. Liars are searched for until no more is left."""

_NOISE = 1e-14
"""What rounding makes of honest rows; 3e-15 was measured, at n=50 and d=100,000."""

_FAINT = 1e-6
"""Lies so small beside the others' rows are left out, as far as they are found, and nobody is
blamed for them: one may have been taken for its neighbour's."""

_LARGEST = 1e100
"""No honest row projects to more: float32 gradients, at most 1e38, times weights, times d."""


class Locator:
    """Finds up to f liars among the rows of one round."""

    def __init__(self, fourier: Any, r: int, f: int) -> None:
        self.n, self.r, self.f = len(fourier), r, f
        self._code = fourier[: self.n - r + 1]  # C_L
        self._checks = fourier[self.n - r + 1 :].conj()  # C_R, conjugated
        self._points = np.exp(-2j * np.pi / self.n * np.arange(self.n))  # x_j

    def locate(self, seen: Any, silent: set[int]) -> tuple[list[int], list[int]]:
        """The workers to decode from and the liars, by position; `seen` is (n, projections)."""
        sizes = np.abs(seen).max(axis=1)
        sane = sizes <= _LARGEST  # false also for what is not a number
        absurd = {int(j) for j in np.flatnonzero(~sane)} - silent
        y = np.where(sane[:, None], seen, 0.0)
        by_size = [int(j) for j in np.argsort(-np.where(sane, sizes, -1.0)) if sane[j]]
        most = self._most(len(silent))
        if most < 0:
            raise DecodingError(self._too_silent(len(silent)))
        for loudest in range(most - len(absurd) + 1):
            found = self._search(y, silent, absurd | {*by_size[:loudest]}, most)
            if found is not None:
                out = self._without_honest(y, silent | absurd, found - absurd) | absurd
                kept = [j for j in range(self.n) if j not in silent | out]
                proof = len(kept) - self.f  # so many of them are honest at least
                return kept, sorted({*self._named(y, kept, out, proof)} | absurd)
        raise DecodingError(self._too_many(len(silent)))

    def _most(self, silent: int) -> int:
        """How many may be left out as liars; below zero, the rows heard prove nothing."""
        return min(self.f, self.r - 1 - silent - self.f)

    def _search(self, y: Any, silent: set[int], start: set[int], most: int) -> set[int] | None:
        """Up to `most` workers, those of `start` among them, without whom the others fit."""
        out, suspects = set(start), set[int]()
        while not self._fits(y, silent | out | suspects, _ROUNDING):
            if suspects:
                rest = sorted(suspects)
                out.add(rest[int(np.argmax(self._sizes(y, silent | out, rest)))])
            suspects = self._suspects(y, silent | out, most - len(out))
            if not suspects:
                return None
        return out | suspects

    def _named(self, y: Any, kept: list[int], out: set[int], proof: int) -> list[int]:
        """Those left out who said something else than the codeword of the others has there.

        Rows fit up to rounding only. Where many neighbours are out, liars may use that room for
        another codeword, which the `proof` honest rows do not tell from theirs but which is far
        from those left out; how far at most, the smallest singular value says. Nobody is blamed
        for less.
        """
        codeword = np.linalg.lstsq(self._code[:, kept].T, y[kept], rcond=None)[0]
        size = np.linalg.norm(y[kept])
        beside = np.linalg.norm(y[kept] - self._code[:, kept].T @ codeword)
        weakest = np.linalg.svd(self._code[:, :proof], compute_uv=False)[-1]  # neighbours
        room = (beside + _NOISE * size) / weakest
        rest = sorted(out)
        away = np.linalg.norm(y[rest] - self._code[:, rest].T @ codeword, axis=1)
        usual = size / np.sqrt(len(kept))
        return [j for j, far in zip(rest, away > max(_FAINT * usual, room), strict=True) if far]

    def _without_honest(self, y: Any, silent: set[int], out: set[int]) -> set[int]:
        """The liars among them: take back, one by one, who fits the others as well."""
        for j in sorted(out):
            if self._fits(y, silent | (out - {j}), TOLERANCE):
                out = out - {j}
        return out

    def _fits(self, y: Any, without: set[int], tolerance: float) -> bool:
        """Do these rows, all but some, belong to one codeword?"""
        kept = [j for j in range(self.n) if j not in without]
        dimension = len(self._code)
        if len(kept) < dimension:
            return False
        basis = np.linalg.qr(self._code[:, kept].T, mode="complete")[0]
        beside = basis[:, dimension:].conj().T @ y[kept]
        return bool(np.linalg.norm(beside) <= tolerance * np.linalg.norm(y[kept]))

    def _suspects(self, y: Any, known: set[int], liars: int) -> set[int]:
        """The workers, one for every liar still allowed, that the rows speak most against."""
        if liars < 1:
            return set()
        syndromes = self._syndromes(y, known)
        windows = np.lib.stride_tricks.sliding_window_view(syndromes, liars + 1, axis=0)
        polynomial = np.linalg.svd(windows.reshape(-1, liars + 1))[2][-1].conj()
        values = np.abs(np.polynomial.polynomial.polyval(self._points, polynomial))
        values[list(known)] = np.inf
        return {int(j) for j in np.argsort(values)[:liars]}

    def _syndromes(self, y: Any, known: set[int]) -> Any:
        """(r − 1 − |known|, projections) what C_R sees, without those who are out already."""
        cleared = np.where(np.isin(np.arange(self.n), list(known))[:, None], 0.0, y)
        largest = np.abs(cleared).max()
        syndromes = self._checks @ (cleared / largest if largest > 0 else cleared)
        for j in known:
            syndromes = syndromes[1:] - self._points[j] * syndromes[:-1]
        return syndromes

    def _sizes(self, y: Any, known: set[int], suspects: list[int]) -> Any:
        """(suspects,) how large each one's lie is, if they all lied and nobody else did."""
        syndromes = self._syndromes(y, known)
        powers = self._points[suspects][None, :] ** np.arange(len(syndromes))[:, None]
        lies = np.linalg.lstsq(powers, syndromes, rcond=None)[0]
        sizes = np.linalg.norm(lies, axis=1)
        for j in known:
            sizes = sizes / np.abs(self._points[suspects] - self._points[j])
        return sizes

    def _too_many(self, silent: int) -> str:
        most = self._most(silent)
        return (
            f"The rows of {self.n - silent} workers fit no codeword, not even without {most} of "
            f"them. With {silent} silent, r={self.r} undoes {most} lies (r - 1 - silent - f, and "
            f"at most f={self.f}): more lied, or honest workers were late or do not compute alike. "
            "Wait longer, allow for more (a larger r or f, with r >= 2f + 1), and see that all "
            "workers run alike."
        )

    def _too_silent(self, silent: int) -> str:
        return (
            f"{silent} of {self.n} workers are silent, and f={self.f} liars could make the other "
            f"rows fit whatever they like: r={self.r} bears {self.r - 1 - self.f} silent at most "
            "(r - 1 - f). Wait longer, or have every gradient computed more often."
        )
