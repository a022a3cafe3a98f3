"""Rows in main memory, worked by the compiled kernels on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.types import Flags, Floats, Indices, Matrix
from garfield.kernels import _native, aligned, networks
from garfield.kernels.parallel import over_columns
from garfield.kernels.rows import NonFinite, Rows

_NON_FINITE = 1  # the kernels' status when a value was NaN or infinite
_MEDIAN, _TRIMMED_MEAN, _MEAN_NEAR_MEDIAN = 0, 1, 2


Steps = npt.NDArray[np.int32]  # (steps, 3), as the kernels read a network


@lru_cache(maxsize=512)
def _steps(kind: str, *sizes: int) -> Steps:
    network = getattr(networks, kind)(*sizes)
    return np.array(network, dtype=np.int32).reshape(-1, 3)


def _address(array: np.ndarray[Any, Any] | None) -> int:
    return 0 if array is None else array.ctypes.data


class NativeRows(Rows):
    """numpy rows of float32 or float64, each contiguous; read in place, never copied."""

    def __init__(self, rows: Sequence[Floats], mix: Matrix | None = None) -> None:
        super().__init__(len(rows), len(rows[0]), mix)
        self.rows = rows  # kept: the kernels hold bare addresses
        self.dtype = rows[0].dtype
        self._pointers = np.array([_address(row) for row in rows], dtype=np.intp)

    def median(self) -> Floats:
        return self._select(_steps("median", self.n), _MEDIAN, 0)

    def trimmed_mean(self, f: int) -> Floats:
        return self._select(_steps("trimmed", self.n, f), _TRIMMED_MEAN, f)

    def mean_near_median(self, k: int) -> Floats:
        return self._select(_steps("near_median", self.n, k), _MEAN_NEAR_MEDIAN, k)

    def columns(self, index: Indices) -> Matrix:
        picked = np.array([row[index] for row in self.rows], dtype=np.float64)
        return picked if self.mix is None else self.mix @ picked

    def _row(self, i: int) -> Floats:
        mixed = self.mix is not None
        row = self.weighted_sum(np.eye(self.n)[i]) if mixed else self.rows[i].view()
        row.flags.writeable = False
        return row

    def _matrix(self) -> Floats:
        stacked = np.stack(self.rows)
        return stacked if self.mix is None else (self.mix @ stacked).astype(self.dtype)

    def subset(self, index: Indices) -> NativeRows:
        if self.mix is None:
            part = NativeRows([self.rows[i] for i in index])
        else:
            part = NativeRows(self.rows, self.mix[index])
        if self._sq_dists is not None:
            part._sq_dists = self._sq_dists[np.ix_(index, index)]
        return part

    # -- the kernels' shells ------------------------------------------------------

    def _kernel(self, name: str) -> Callable[..., int]:
        suffix = "f32" if self.dtype == np.float32 else "f64"
        return getattr(_native, f"{name}_{suffix}")  # type: ignore[no-any-return]

    def _with_mix(self, mix: Matrix | None) -> NativeRows:
        return NativeRows(self.rows, mix)

    def _appended(self, row: Floats, mix: Matrix | None) -> NativeRows:
        return NativeRows([*self.rows, np.ascontiguousarray(row, dtype=self.dtype)], mix)

    def _dists(self, *, wide: bool) -> Matrix:
        kernel = self._kernel("sq_dists_wide" if wide else "sq_dists")
        mix = (_address(self.mix), self.n) if wide else ()

        def work(lo: int, hi: int) -> Matrix:
            part = np.zeros((self.n, self.n))
            kernel(_address(self._pointers), self.base_n, lo, hi, *mix, _address(part))
            return part

        upper = sum(over_columns(work, self.d), np.zeros((self.n, self.n)))
        return upper + upper.T

    def _dists_to(self, point: Floats | None) -> Matrix:
        kernel = self._kernel("sq_dists_to")
        if point is not None:
            point = np.ascontiguousarray(point, dtype=self.dtype)

        def work(lo: int, hi: int) -> Matrix:
            part = np.zeros(self.n)
            pointers = _address(self._pointers), self.base_n, lo, hi
            kernel(*pointers, _address(self.mix), self.n, _address(point), _address(part))
            return part

        return sum(over_columns(work, self.d), np.zeros(self.n))

    def _sum(self, base_weights: Matrix, divisor: float, out: Floats | None) -> tuple[Floats, bool]:
        kernel = self._kernel("weighted_sum")
        by = np.array([divisor])
        weights = np.ascontiguousarray(base_weights, dtype=np.float64)
        into = aligned.empty(self.d, self.dtype) if out is None else out

        def work(lo: int, hi: int) -> int:
            pointers = _address(self._pointers), self.base_n, lo, hi
            return kernel(*pointers, _address(weights), _address(by), _address(into))

        return into, _NON_FINITE not in over_columns(work, self.d)

    def _select(self, network: Steps, mode: int, arg: int) -> Floats:
        kernel = self._kernel("select")
        out = aligned.empty(self.d, self.dtype)
        mix = _address(self.mix), self.n
        steps = _address(network), len(network)

        def work(lo: int, hi: int) -> None:
            pointers = _address(self._pointers), self.base_n, lo, hi
            if kernel(*pointers, *mix, *steps, mode, arg, _address(out)) == _NON_FINITE:
                raise NonFinite(np.zeros(self.base_n, dtype=bool))

        try:
            over_columns(work, self.d)
        except NonFinite:
            self.require_finite()  # says which; all finite means that a mix overflowed
            raise
        return out

    def _non_finite(self) -> Flags:
        kernel = self._kernel("non_finite_rows")

        def work(lo: int, hi: int) -> Flags:
            bad = np.zeros(self.base_n, dtype=np.uint8)
            kernel(_address(self._pointers), self.base_n, lo, hi, _address(bad))
            return bad.astype(bool)

        return np.asarray(np.any(over_columns(work, self.d), axis=0))


class MaskedRows(NativeRows):
    """Rows of which some coordinates never arrived: order statistics of those that did.

    Only what works per coordinate is offered; a distance between two rows that
    share no coordinate means nothing.
    """

    def __init__(self, rows: Sequence[Floats], present: Sequence[Flags]) -> None:
        super().__init__(rows)
        self.present = present
        self._masks = np.array([_address(mask) for mask in present], dtype=np.intp)

    def subset(self, index: Indices) -> MaskedRows:
        return MaskedRows([self.rows[i] for i in index], [self.present[i] for i in index])

    def _select(self, network: Steps, mode: int, arg: int) -> Floats:
        kernel = self._kernel("select_present")
        f = self.n - arg if mode == _MEAN_NEAR_MEDIAN else arg
        network = _steps("sorting", self.n)  # ranks differ from column to column: sort them all
        out = aligned.empty(self.d, self.dtype)

        def work(lo: int, hi: int) -> None:
            pointers = _address(self._pointers), _address(self._masks), self.n, lo, hi
            if kernel(*pointers, _address(network), len(network), mode, f, _address(out)):
                raise NonFinite(self._non_finite())

        over_columns(work, self.d)
        return out

    def _non_finite(self) -> Flags:
        pairs = zip(self.rows, self.present, strict=True)
        return np.array([not np.isfinite(row[here]).all() for row, here in pairs])
