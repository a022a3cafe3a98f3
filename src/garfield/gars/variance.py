"""Does the variance condition hold? Equation 3.12 of the thesis, on measured gradients.

A rule is sure of its direction only while honest gradients vary little beside
their mean:  κ Δ √E|g − E g|² <= |∇L|  for some κ > 1, with the rule's Δ of
equation 3.13. Give rounds of honest gradients, as many as your workers would
send, and see for each rule whether it held and how far from the edge.

`noise_to_signal` is the one number of a round that all rules share, σ / |∇L|: a
rule's condition holds where it is below 1/Δ. It is cheap enough to be taken at
every step of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from garfield.core.errors import InputError
from garfield.core.types import Floats
from garfield.gars.rule import GARS, Rule
from garfield.kernels import NonFinite, read

_CHEAP = 2**21
"""So many numbers are looked at in a millisecond or two."""


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


def margin(rule: Rule, ratios: Sequence[float], *, n: int, f: int) -> Margin | None:
    """How a rule stands to rounds of these σ / |∇L|; None where its Δ is not known."""
    delta = rule.variance_ratio(n, f)
    if delta is None:
        return None
    return Margin(delta, tuple(1 / (delta * r) if delta * r > 0 else math.inf for r in ratios))


def noise_to_signal(rows: Sequence[Floats]) -> float:
    """σ / |∇L| of one round of honest gradients, (d,) each, both as in `variance_condition`.

    Infinite where the mean is no longer than noise alone would make it; NaN where a row is not
    finite. Two passes over the rows: 10 ms at d = 1e6 and 17 rows, nearly as long as Multi-Krum.
    """
    if len(rows) < 2:
        raise InputError("A round needs at least 2 honest gradients to have a variance.")
    h, (given, kind) = len(rows), read(rows)
    try:
        mean = kind.wrap(given.weighted_sum(np.full(h, 1 / h)))
        sq_norms, sq_mean = given.sq_norms(), float(read([mean])[0].sq_norms()[0])
    except NonFinite:
        return math.nan
    variance = max(float(sq_norms.sum()) - h * sq_mean, 0.0) / (h - 1)
    sq_signal = sq_mean - variance / h
    if variance == 0.0:
        return 0.0
    return math.sqrt(variance / sq_signal) if sq_signal > 0.0 else math.inf


def worth_measuring(step: int, n: int, d: int) -> bool:
    """Whether to measure at this step, the first being 1: at all of them unless vectors are long.

    At every k-th where n rows of d are k times two million numbers, so that a step costs a
    millisecond or two more on average.
    """
    return (step - 1) % max(1, n * d // _CHEAP) == 0


def _signal_and_noise(sq_dists: Any, sq_norms: Any) -> tuple[float, float]:
    """|∇L| and σ, from distances: Σ|x_i − μ|² = (1/2h) ΣΣ D_ij."""
    h = len(sq_norms)
    scatter = float(sq_dists.sum()) / (2 * h)
    variance = scatter / (h - 1)
    sq_mean = float(sq_norms.mean()) - scatter / h
    return math.sqrt(max(sq_mean - variance / h, 0.0)), float(np.sqrt(variance))
