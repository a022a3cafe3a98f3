"""What is proven of κ: an upper bound per rule, and the least that any rule can have.

Where a bound is not as published, its entry says what it follows from. With h = n − f
honest rows, σ² their mean squared distance to their mean μ:

krum, multi-krum    The paper sums over n − f neighbours, ours over n − f − 2. A best row x has
                    a score of at most 2hσ² (h − 2)/(h − 1), the mean of honest scores, and at
                    least n − 2f − 2 honest neighbours y; |x − μ|² <= 2|x − y|² + 2|y − μ|².
                    The m best of Multi-Krum satisfy it on average, and so does their mean.
mda                 The chosen rows differ from the honest in at most f, each of them within two
                    honest diameters D: |R − μ| <= (2f/h) D; and D² <= 2hσ².
meamed              Values nearest the median m take the place of honest ones farther from it:
                    |R − μ|² <= (4f/h)(σ² + |m − μ|²).
dnc                 None: where one liar says what the mean of all rows will be, and another pulls
                    the mean there, the first sticks out least of all and is never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from garfield.gars.rule import Rule

_PAPER = "Allouah et al., AISTATS 2023"
_HERE = f"derived here, after {_PAPER}"
_HARMLESS = frozenset({"m", "seed"})  # the bounds hold for every value of these


@dataclass(frozen=True)
class Bound:
    """An upper bound of κ, and where it is proven."""

    kappa: float
    source: str


def _median(n: int, f: int) -> float:
    return 4 * (1 + f / (n - 2 * f)) ** 2


def _krum(n: int, f: int) -> float:
    h = n - f
    return 2 * h / (h - f - 2) * (1 + 2 * (h - 2) / (h - 1))


_RULES: Mapping[str, tuple[Callable[[int, int], float | None], str]] = {
    "average": (lambda n, f: math.inf if f else 0.0, "one liar moves it anywhere"),
    "median": (_median, _PAPER),
    "geometric-median": (_median, _PAPER),
    "trimmed-mean": (lambda n, f: 6 * f / (n - 2 * f) * (1 + f / (n - 2 * f)), _PAPER),
    "krum": (_krum, _HERE),
    "multi-krum": (_krum, _HERE),
    "mda": (lambda n, f: 8 * f**2 / (n - f), "derived here, after Farhadkhani et al., ICML 2022"),
    "dnc": (lambda n, f: math.inf if f > 1 else None, "derived here"),
    "meamed": (lambda n, f: 4 * f / (n - f) * (1 + _median(n, f)), _HERE),
}

_STAGES: Mapping[str, tuple[Callable[[float, int, int], float], str]] = {
    "nnm": (lambda kappa, n, f: 8 * f / (n - f) * (kappa + 1), _PAPER),
    "arc": (lambda kappa, n, f: kappa + 2 * f / (n - 2 * f), "Allouah et al., ICLR 2025"),
}


def proven_kappa(rule: Rule, n: int, f: int) -> Bound | None:
    """The best upper bound known of a rule's κ, its stages included; None if there is none."""
    rule.check(n, f)
    name = rule.name.split("+")[-1]
    if name not in _RULES or not _HARMLESS.issuperset(rule.params):
        return None
    formula, source = _RULES[name]
    kappa, sources = formula(n, f), [source]
    if kappa is None or (kappa == math.inf and rule.stages):
        return None
    for stage in reversed(rule.stages):
        if stage.name not in _STAGES or stage.params:
            return None
        through, source = _STAGES[stage.name]
        kappa = through(kappa, n, f)
        sources.append(source)
    return Bound(kappa, "; ".join(dict.fromkeys(sources)))


def least_kappa(n: int, f: int) -> float:
    """What no rule's κ can be below: f/(n − 2f) (Allouah et al., AISTATS 2023).

    Of n rows, f are one vector and the others another; each of the two may be the liars'.
    """
    return f / (n - 2 * f) if n > 2 * f else math.inf
