"""Does the variance condition hold? Equation 3.12 of the thesis, on measured gradients.

A rule is sure of its direction only while honest gradients vary little beside
their mean:  κ Δ √E|g − E g|² <= |∇L|  for some κ > 1, with the rule's Δ of
equation 3.13. Give rounds of honest gradients, as many as your workers would
send, and see for each rule whether it held and how far from the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from garfield.core.errors import InputError
from garfield.gars.rule import GARS
from garfield.kernels import read


@dataclass(frozen=True)
class Margin:
    """How a rule stands to the condition over the rounds given."""

    delta: float
    """Δ(n, f) of equation 3.13."""
    kappas: tuple[float, ...]
    """κ of each round: |∇L| / (Δ σ). The condition holds where it exceeds one."""

    @property
    def holds(self) -> bool:
        """Whether the condition holds in every round."""
        return min(self.kappas) > 1.0

    @property
    def share(self) -> float:
        """The share of rounds in which it holds."""
        return sum(kappa > 1.0 for kappa in self.kappas) / len(self.kappas)

    @property
    def worst(self) -> float:
        """The smallest κ."""
        return min(self.kappas)


def variance_condition(rounds: Iterable[Any], *, f: int) -> Mapping[str, Margin]:
    """Margin per rule whose Δ is known and whose bound allows n = honest rows + f.

    Each round is h honest gradients (a list of vectors or one (h, d) array).
    σ² is their sample variance, |∇L|² the squared length of their mean less
    σ²/h, which is what the mean of noise alone would add to it.
    """
    kappas: dict[str, list[float]] = {}
    deltas: dict[str, float] = {}
    for gradients in rounds:
        rows, _ = read(gradients)
        if rows.n < 2:
            raise InputError("A round needs at least 2 honest gradients to have a variance.")
        signal, noise = _signal_and_noise(rows.sq_dists(), rows.sq_norms())
        for name, rule in GARS.items():
            n = rows.n + f
            if rule.ratio is None or n < rule.needs(f):
                continue
            deltas[name] = rule.ratio(n, f)
            limit = deltas[name] * noise
            kappas.setdefault(name, []).append(signal / limit if limit > 0 else math.inf)
    if not kappas:
        raise InputError("There are no rounds to judge, or too few gradients for any rule.")
    return {name: Margin(deltas[name], tuple(values)) for name, values in kappas.items()}


def _signal_and_noise(sq_dists: Any, sq_norms: Any) -> tuple[float, float]:
    """|∇L| and σ, from distances: Σ|x_i − μ|² = (1/2h) ΣΣ D_ij."""
    h = len(sq_norms)
    scatter = float(sq_dists.sum()) / (2 * h)
    variance = scatter / (h - 1)
    sq_mean = float(sq_norms.mean()) - scatter / h
    return math.sqrt(max(sq_mean - variance / h, 0.0)), float(np.sqrt(variance))
