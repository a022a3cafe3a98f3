"""Takeover: whoever is one term of a linear rule sets its answer to any vector U.

    F(x_1, …, x_n) = Σ λ_i x_i,   lie = (U − Σ λ_i x_i over the honest) / Σ λ_j over the liars

then F = U exactly: one liar is enough, and no weights that are known beforehand help. Here the
rule is taken to be the average of all rows, λ_i = 1/n, so that lie = (n U − Σ x_i) / f; U is
`factor` times the honest mean (its reverse, unless said otherwise), or `value` everywhere.

The attacker knows all honest rows. Blanchard, El Mhamdi, Guerraoui and Stainer, NeurIPS 2017
(Krum), lemma 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import honest_rows
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats, Matrix


def taking_over(target: Matrix, honest: Floats, weights: Sequence[float], own: float) -> Matrix:
    """(d,) the row of weight `own` that makes the weighted sum of all rows the target."""
    told = np.einsum("i,ij->j", np.asarray(weights, np.float64), honest)
    lie: Matrix = (target - told) / own
    return lie


def _a_target(factor: float, value: float | None) -> None:
    if value is not None and not (isinstance(value, Real) and np.isfinite(value)):
        raise ConfigError(f"takeover.value must be a finite number, got {value!r}.")


@attack("takeover", knows="all", limits=_a_target, unanimous=True)
def takeover(view: View, *, factor: float = -1.0, value: float | None = None) -> Floats:
    rows = honest_rows(view)
    target = factor * rows.mean(axis=0, dtype=np.float64)
    if value is not None:
        target = np.full(view.d, float(value))
    heard = len(rows) + view.f
    return taking_over(target, rows, [1 / heard] * len(rows), view.f / heard)
