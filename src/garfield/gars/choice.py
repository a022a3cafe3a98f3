"""What a rule decided: the vector, and who was trusted with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from garfield.core.types import Indices, Matrix, Vector
from garfield.kernels.rows import Rows


@dataclass(frozen=True)
class Choice:
    """What a rule's function may return instead of the bare vector."""

    vector: Vector
    weights: Matrix | None = None
    """(n,) the share of each row in the vector, where it is a weighted sum of rows."""
    trusted: Indices | None = None
    """The rows that a selecting rule let in: those with a share in the result."""
    scores: Matrix | None = None
    """(n,) what the rule judged the rows by; smaller is better."""


@dataclass(frozen=True)
class Explained:
    """The answer to ``aggregate(..., explain=True)``. Positions are those of the caller's rows."""

    vector: Vector
    """The result, of whatever shape the rows are."""
    trusted: tuple[int, ...] | None
    """Rows that were let in; None for a rule that decides per coordinate."""
    left_out: tuple[int, ...] | None
    """Rows that were given but not let in, those set aside among them."""
    set_aside: Mapping[int, str] = field(default_factory=dict)
    """Rows that no rule was shown, each with the reason: missing, non-finite, too large,
    or misfit and how it differs from most rows."""
    weights: Matrix | None = None
    """(n,) the share of each row in the vector; None where it is no weighted sum of rows."""
    scores: Matrix | None = None
    """(n,) what the rule judged rows by, smaller is better; NaN for rows set aside."""
    f: int | None = None
    """How many faults the rows that were shown were aggregated for."""


def weigh(
    rows: Rows, weights: Matrix, *, scores: Matrix | None = None, out: Vector | None = None
) -> Choice:
    """The weighted sum of rows, and the record of it."""
    vector = rows.weighted_sum(weights, out=out)
    shares = rows.base_weights(weights)
    return Choice(vector, shares, np.flatnonzero(shares), scores)


def average_of(
    rows: Rows, chosen: Indices, *, scores: Matrix | None = None, out: Vector | None = None
) -> Choice:
    """The plain mean of some rows."""
    weights = np.zeros(rows.n)
    weights[chosen] = 1.0 / len(chosen)
    return weigh(rows, weights, scores=scores, out=out)


def behind(rows: Rows, chosen: Indices) -> Indices:
    """The caller's rows that have a part in these: the same ones, unless rows are mixed."""
    return chosen if rows.mix is None else np.flatnonzero(rows.mix[chosen].any(axis=0))
