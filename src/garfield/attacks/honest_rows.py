"""Statistics of the honest rows: what an omniscient attacker works out about them.

All in float64, since float32 sums over rows of 1e38 overflow, and part by part
over the columns, since a float64 copy of ten million columns would not fit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from garfield.attacks.view import View
from garfield.core.errors import InputError
from garfield.core.types import Floats, Matrix
from garfield.kernels import read
from garfield.kernels.parallel import over_columns

_LARGEST = 1e60  # squared and summed over the columns, still far from overflow in float64


def honest_rows(view: View) -> Floats:
    """(h, d) the honest rows that are finite and can be squared."""
    assert view.honest is not None  # Attack.__call__ refuses such a view
    return view.honest[usable(view.honest)]


def learnable_rows(view: View) -> Floats:
    """(h, d) the rows whose spread a lie can hide in.

    They are the honest rows, or what these might have been where they are all alike.
    """
    return honest_rows(view) if view.likely is None else view.likely[usable(view.likely)]


def usable(rows: Floats) -> slice | npt.NDArray[np.intp]:
    """The positions of rows that are finite and can be squared; all of them as a slice."""
    fine = [bool(-row.min() <= _LARGEST and row.max() <= _LARGEST) for row in rows]
    if not any(fine):
        raise InputError(
            f"None of the {len(fine)} honest rows is finite and within ±{_LARGEST:g}: "
            "there is nothing to learn from them."
        )
    return slice(None) if all(fine) else np.flatnonzero(fine)


def mean_of(rows: Floats) -> Matrix:
    """(d,)"""
    mean: Matrix = rows.mean(axis=0, dtype=np.float64)
    return mean


def mean_and_std(rows: Floats) -> tuple[Matrix, Matrix]:
    """(d,) and (d,); the deviation is the population's, divided by h."""
    h, d = rows.shape
    mean, std = np.empty(d), np.empty(d)

    def work(lo: int, hi: int) -> None:
        block = rows[:, lo:hi].astype(np.float64)
        block.mean(axis=0, out=mean[lo:hi])
        block -= mean[lo:hi]  # subtract first: E[x²] − E[x]² cancels
        std[lo:hi] = np.sqrt(np.einsum("ij,ij->j", block, block) / h)

    over_columns(work, d)
    return mean, std


def spread_along(rows: Floats, mean: Matrix, direction: Matrix) -> tuple[Matrix, Matrix]:
    """(h,) inner products ⟨direction, x_i − mean⟩ and (h,) squared distances |x_i − mean|²."""

    def work(lo: int, hi: int) -> tuple[Matrix, Matrix]:
        block = rows[:, lo:hi] - mean[lo:hi]
        return block @ direction[lo:hi], np.einsum("ij,ij->i", block, block)

    along, away = zip(*over_columns(work, rows.shape[1]), strict=True)
    return np.sum(along, axis=0), np.sum(away, axis=0)


def sq_dists(rows: Floats) -> Matrix:
    """(h, h) squared distances between the honest rows."""
    return read(rows)[0].sq_dists()


def principal_parts(rows: Floats) -> Matrix:
    """(h,) ⟨v, x_i − μ⟩ along the first principal component v, whose sign is arbitrary.

    It is √λ u, with λ, u the largest eigenpair of the centred (h, h) Gram matrix: no vector of
    length d is needed.
    """
    gram = -0.5 * sq_dists(rows)
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)  # ⟨x_i − μ, x_j − μ⟩
    values, vectors = np.linalg.eigh(gram)
    parts: Matrix = np.sqrt(max(float(values[-1]), 0.0)) * vectors[:, -1]
    return parts
