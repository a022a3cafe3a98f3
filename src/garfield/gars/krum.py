"""Krum and Multi-Krum: trust the rows that have the closest peers.

A row's score is the sum of its squared distances to its n − f − 2 nearest
peers. Multi-Krum averages the m rows of the smallest scores; Krum is m = 1.

Needs n >= 2f + 3. Costs O(n² d).
Blanchard et al., NeurIPS 2017; Multi-Krum: Damaskinos et al., SysML 2019; thesis 3.3.1.
"""

import math

from garfield.core.errors import ConfigError
from garfield.core.types import Matrix
from garfield.gars.choice import Choice, average_of
from garfield.gars.rule import gar
from garfield.kernels import Rows
from garfield.kernels.algebra import smallest, sum_smallest


def scores(sq_dists: Matrix, f: int) -> Matrix:
    """(n,) sums over the n − f − 2 nearest peers; over one peer when fewer are left.

    Fewer are left only inside Bulyan's last rounds; a caller's n is checked before.
    """
    return sum_smallest(sq_dists, max(1, len(sq_dists) - f - 2))


def variance_ratio(n: int, f: int) -> float:
    """Equation 3.13: √(2 (n − f + (f (n − f − 2) + f² (n − f − 1)) / (n − 2f − 2)))."""
    spread = (f * (n - f - 2) + f**2 * (n - f - 1)) / (n - 2 * f - 2)
    return math.sqrt(2 * (n - f + spread))


def _m_within_bounds(n: int, f: int, m: int | None = None) -> None:
    if m is not None and not 1 <= m <= n - f - 2:
        raise ConfigError(f"multi-krum.m must be within 1..{n - f - 2} (n - f - 2), got {m}.")


@gar(
    "krum",
    needs=lambda f: 2 * f + 3,
    variance_ratio=variance_ratio,
    selects=True,
    anyway="leave some out",
    cost="O(n² d)",
    choose="one row must be picked, not an average: to select for Bulyan, or to name a culprit",
)
def krum(rows: Rows, *, f: int) -> Choice:
    return _best(rows, f, 1)


@gar(
    "multi-krum",
    needs=lambda f: 2 * f + 3,
    limits=_m_within_bounds,
    variance_ratio=variance_ratio,
    selects=True,
    anyway="leave some out",
    cost="O(n² d)",
    choose="honest rows agree: nearly the speed of averaging to converge, and names who is off",
)
def multi_krum(rows: Rows, *, f: int, m: int | None = None) -> Choice:
    return _best(rows, f, max(1, rows.n - f - 2) if m is None else m)


def _best(rows: Rows, f: int, m: int) -> Choice:
    dists = rows.sq_dists()
    score = scores(dists, f)  # (n,)
    return average_of(rows, smallest(score, m, dists), scores=score)
