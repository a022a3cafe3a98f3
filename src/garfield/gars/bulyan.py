"""Bulyan: select by one rule, then agree coordinate by coordinate.

Another rule (Krum by default) picks a row, which is taken out, θ = n − 2f
times; of a rule that gives a mean rather than a row, the row nearest to it is
picked. With m it is Multi-Krum that picks, by the mean of its m best rows, where
1 ≤ m ≤ n − 2f − 2; m = 1 is Krum. Each coordinate of the answer is then the mean of
the β = θ − 2f selected values nearest their median. So a liar that slipped through the
selection cannot hide one bad coordinate among millions of good ones.

Needs n >= 4f + 3. Costs O(n² d): the distances are taken once, the selection
works on them. El Mhamdi, Guerraoui and Rouault, ICML 2018; thesis, algorithm 1.
m: Damaskinos et al., SysML 2019.
"""

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Indices, Matrix
from garfield.gars.choice import Choice, behind
from garfield.gars.rule import GARS, Rule, gar
from garfield.kernels import Rows
from garfield.kernels.algebra import sq_dists_to_mean
from garfield.kernels.geometry import Geometry

_EQUAL = 1e-9  # of the spread of the rows whose mean it is: rounding stays far below


def select(sq_dists: Matrix, f: int, base: Rule) -> Indices:
    """The θ = n − 2f rows that `base` picks one after the other.

    The bound on n was checked once, for the first pick; a base with few rows
    left does what it can (Krum then sums over one neighbour at least).
    """
    left = np.arange(len(sq_dists))
    picked = []
    for _ in range(len(sq_dists) - 2 * f):
        among = sq_dists[np.ix_(left, left)]
        params = dict(base.params)
        if "m" in params:
            params["m"] = min(params["m"], max(1, len(left) - f - 2))
        choice = base.function(Geometry(among), f=f, **params)
        if not isinstance(choice, Choice) or choice.weights is None:
            raise ConfigError(f"bulyan.base must be a selecting rule, and {base.name} is not.")
        at = _nearest_to_mean(among, choice.weights)
        picked.append(left[at])
        left = np.delete(left, at)
    return np.sort(np.array(picked))


def _nearest_to_mean(sq_dists: Matrix, weights: Matrix) -> int:
    """The row nearest to the weighted mean of all.

    Two rows are equally near to their own mean, up to rounding: of such, the one nearer to all
    others, so that the choice does not depend on how rows are numbered.
    """
    away = sq_dists_to_mean(sq_dists, weights)
    alike = away <= away.min() + _EQUAL * (weights @ sq_dists @ weights)
    return int(np.argmin(np.where(alike, sq_dists.sum(axis=1), np.inf)))


def _m_within_bounds(n: int, f: int, base: str | Rule = "krum", m: int | None = None) -> None:
    if m is not None and not 1 <= m <= n - 2 * f - 2:
        raise ConfigError(f"bulyan.m must be within 1..{n - 2 * f - 2} (n - 2f - 2), got {m}.")
    if m is not None and base not in ("krum", "multi-krum"):
        raise ConfigError("bulyan.m is Multi-Krum's. Give it without a base.")
    if isinstance(base, str):
        GARS[base]  # UnknownName, before anything starts


@gar(
    "bulyan",
    needs=lambda f: 4 * f + 3,
    limits=_m_within_bounds,
    selects=True,
    cost="O(n² d)",
    choose="the model is large and the adversary strong: the thesis's advice",
)
def bulyan(rows: Rows, *, f: int, base: str | Rule = "krum", m: int | None = None) -> Choice:
    rule = GARS[base] if isinstance(base, str) else base
    rule = rule if m is None else GARS["multi-krum"].bind(m=m)
    picked = select(rows.sq_dists(), f, rule)
    selected = rows.subset(picked)
    vector = selected.mean_near_median(rows.n - 4 * f)
    return Choice(vector, trusted=behind(rows, picked))
