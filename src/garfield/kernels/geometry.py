"""Rows of which only the distances are known: to run a selecting rule again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Flags, Indices, Matrix
from garfield.kernels.rows import Rows


class Geometry(Rows):
    """Answers `sq_dists`; a weighted sum is the weights themselves; anything else is refused."""

    def __init__(self, sq_dists: Matrix) -> None:
        super().__init__(len(sq_dists), 0, None)
        self._sq_dists = sq_dists

    def subset(self, index: Indices) -> Geometry:
        assert self._sq_dists is not None
        return Geometry(self._sq_dists[np.ix_(index, index)])

    def mixed(self, mix: Matrix, sq_dists: Callable[[], Matrix] | None = None) -> Geometry:
        if sq_dists is None:
            return self  # asked for by pull_in, to gain precision that only the vectors hold
        mixed = Geometry(sq_dists())
        mixed.mix, mixed.base_n = mix, self.base_n
        return mixed

    def _sum(self, base_weights: Matrix, divisor: float, out: Any) -> tuple[Matrix, bool]:
        return base_weights / divisor, True

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            "Only a rule that decides by distances alone can select for another, such as krum, "
            "multi-krum, mda, monna, geometric-median or caf."
        )

    median = trimmed_mean = mean_near_median = columns = matrix = _refuse
    _dists = _dists_to = _with_mix = _appended = _matrix = _row = _refuse

    def _non_finite(self) -> Flags:
        return np.zeros(self.base_n, dtype=bool)
