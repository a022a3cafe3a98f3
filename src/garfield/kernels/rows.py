"""Rows: n vectors of length d, seen through the few primitives all rules share.

Our rules never touch the vectors' elements themselves. They ask for distances,
norms, order statistics per coordinate, or a weighted sum; `native.py` answers
with compiled kernels on a CPU, `on_torch.py` with torch on any device. A rule of
a user's may as well take the rows for the (n, d) array that they are: iterate over
them, index them, or pass them to numpy. It then sees finite numbers only: rows
that are not are set aside first, and the rule is called again without them.

Rows may be *mixed*: row i is then a combination of the underlying ones, given
by row i of a small matrix. Pre-aggregation is nothing but such a matrix, and
no mixed vector is ever stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from garfield.core.blame import Signal
from garfield.core.types import Flags, Indices, Matrix, Vector

LARGEST = 1e150
"""Squared distances beyond this are refused: the arithmetic on them squares once more. No
float32 row comes near it (1e85 at ten million coordinates of 3e38); a float64 one may."""


_ROUNDING = 8 * np.finfo(np.float64).eps
"""Weights that differ by no more were meant to be equal."""


class NonFinite(Signal):  # (a signal to the rule's shell, not an error of the user's)
    """Some rows cannot be computed with; carries which, and why."""

    def __init__(self, bad: Flags, reason: str = "non-finite") -> None:
        super().__init__(f"{int(bad.sum())} of {len(bad)} rows are {reason}")
        self.bad = bad
        self.reason = reason


class Rows(ABC):
    """The contract. Subclasses compute; this class keeps what was computed."""

    def __init__(self, base_n: int, d: int, mix: Matrix | None) -> None:
        self.base_n = base_n
        self.d = d
        self.mix = None if mix is None else np.ascontiguousarray(mix, dtype=np.float64)
        self.n = base_n if mix is None else len(mix)
        self._sq_dists: Matrix | None = None
        self._dists_by: Callable[[], Matrix] | None = None
        self._known_finite = False

    # -- as an array ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.n, self.d

    @property
    def ndim(self) -> int:
        """2, as a matrix has."""
        return 2

    def __iter__(self) -> Iterator[Vector]:
        return (self[i] for i in range(self.n))

    def __getitem__(self, index: Any) -> Any:
        """Row i, which cannot be written to; of a slice, list or mask, those rows; else elements.

        ``rows[3]`` is a vector, ``rows[rows.sq_norms() < 2]`` are rows again, and ``rows[:, 5]``
        are numbers.
        """
        if isinstance(index, tuple):
            return self.matrix()[index]
        chosen = np.arange(self.n)[index]
        if chosen.ndim:
            return self.subset(chosen)
        self._require_finite_once()
        return self._row(int(chosen))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("The rows lie apart in memory: an array of them is a copy.")
        whole = self.matrix()
        return np.asarray(whole if isinstance(whole, np.ndarray) else whole.cpu(), dtype=dtype)

    def matrix(self) -> Any:
        """(n, d) of the rows themselves, copied: for rules that need every element."""
        self._require_finite_once()
        return self._matrix()

    # -- what a rule may ask for ------------------------------------------------

    def sq_dists(self) -> Matrix:
        """(n, n) squared distances, computed once."""
        if self._sq_dists is None and self._dists_by is not None:
            self._sq_dists = self._dists_by()
        if self._sq_dists is None:
            dists = self._dists(wide=self.mix is not None)
            if not (dists < LARGEST).all():  # NaN compares false
                self.require_finite()
                dists = self._settled(self._dists(wide=True))
            self._sq_dists = dists
        return self._sq_dists

    def sq_dists_to(self, point: Vector) -> Matrix:
        """(n,) squared distances to a vector of length d."""
        return self._settled(self._dists_to(point))

    def sq_norms(self) -> Matrix:
        """(n,) squared lengths."""
        return self._settled(self._dists_to(None))

    def weighted_sum(
        self, weights: Matrix, *, out: Vector | None = None, checked: bool = True
    ) -> Vector:
        """Sum of weights[i] × row i; into `out` if given, which may be one of the rows.

        Rows of equal shares are added up and divided once, so that the mean of 1, 4 and 7 is 4.
        Unless `checked` is off, NonFinite is raised when a row that takes part is to blame.
        """
        total, finite = self._sum(*_divided_once(self.base_weights(weights)), out)
        if checked and not finite:
            self.require_finite()
        return total

    @abstractmethod
    def median(self) -> Vector:
        """Per coordinate; of an even count, the mean of the middle two."""

    @abstractmethod
    def trimmed_mean(self, f: int) -> Vector:
        """Per coordinate, the mean without the f smallest and the f largest."""

    @abstractmethod
    def mean_near_median(self, k: int) -> Vector:
        """Per coordinate, the mean of the k values nearest the median; ties go to the smaller."""

    @abstractmethod
    def columns(self, index: Indices) -> Matrix:
        """(n, len(index)) of these coordinates, as float64 numpy."""

    @abstractmethod
    def subset(self, index: Indices) -> Rows:
        """Only these rows, in this order."""

    def with_row(self, row: Vector) -> Rows:
        """These rows and one more, last."""
        mix = None
        if self.mix is not None:
            mix = np.zeros((self.n + 1, self.base_n + 1))
            mix[:-1, :-1] = self.mix
            mix[-1, -1] = 1.0
        more = self._appended(row, mix)
        if self._sq_dists is not None or mix is not None:
            known, to_row = self.sq_dists(), self.sq_dists_to(row)
            more._sq_dists = np.zeros((more.n, more.n))
            more._sq_dists[:-1, :-1] = known
            more._sq_dists[-1, :-1] = more._sq_dists[:-1, -1] = to_row
        return more

    def mixed(self, mix: Matrix, sq_dists: Callable[[], Matrix] | None = None) -> Rows:
        """Rows that are `mix` (m, n) times these.

        `sq_dists` gives their distances if somebody asks: a caller often gets
        them from the distances of these, without another pass over the vectors.
        """
        rows = self._with_mix(mix if self.mix is None else mix @ self.mix)
        rows._dists_by = sq_dists
        return rows

    # -- shared by the subclasses -----------------------------------------------

    def base_weights(self, weights: Matrix) -> Matrix:
        """Weights of these rows as weights of the underlying ones."""
        weights = np.asarray(weights, dtype=np.float64)
        return weights if self.mix is None else self.mix.T @ weights

    def require_finite(self) -> None:
        """Raise NonFinite, naming the underlying rows, unless all are finite."""
        bad = self._non_finite()
        if bad.any():
            raise NonFinite(bad)

    def require_moderate(self) -> None:
        """Raise NonFinite, naming the underlying rows, unless all can be squared."""
        self.require_finite()
        bad = ~(self._base()._dists_to(None) < LARGEST / 10)
        if bad.any():
            raise NonFinite(bad, "too large")

    def _settled(self, sq_dists: Matrix) -> Matrix:
        if not (sq_dists < LARGEST).all():
            self.require_moderate()
        return sq_dists

    def _base(self) -> Rows:
        """The underlying rows, unmixed."""
        return self if self.mix is None else self._with_mix(None)

    @abstractmethod
    def _with_mix(self, mix: Matrix | None) -> Rows: ...

    @abstractmethod
    def _appended(self, row: Vector, mix: Matrix | None) -> Rows: ...

    @abstractmethod
    def _dists(self, *, wide: bool) -> Matrix:
        """(n, n); `wide` in float64 throughout, which alone serves mixed rows."""

    @abstractmethod
    def _dists_to(self, point: Vector | None) -> Matrix: ...

    @abstractmethod
    def _sum(self, base_weights: Matrix, divisor: float, out: Vector | None) -> tuple[Vector, bool]:
        """The weighted sum, divided, and whether all of it is finite."""

    @abstractmethod
    def _non_finite(self) -> Flags: ...

    @abstractmethod
    def _row(self, i: int) -> Vector:
        """Row i; who writes to it does not change what the caller has."""

    @abstractmethod
    def _matrix(self) -> Any: ...

    def _require_finite_once(self) -> None:
        if not self._known_finite:
            self.require_finite()
            self._known_finite = True


def _divided_once(weights: Matrix) -> tuple[Matrix, float]:
    """Weights and the divisor of their sum: as they are, and 1, unless all are 1/k, or zero.

    Then they become a power of two that keeps k rows from overflowing as they are added; a
    product with it is exact, so that all that is rounded are the sum and its one division.
    """
    live = weights != 0.0
    count = int(live.sum())
    if not count or not (np.abs(weights[live] * count - 1.0) <= _ROUNDING).all():
        return weights, 1.0
    share = 0.5 ** math.ceil(math.log2(count))
    return np.where(live, share, 0.0), count * share
