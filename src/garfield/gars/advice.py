"""Which rule for these numbers? What each one allows, costs and promises, and the thesis's pick.

Thesis 3.3.1, "Tradeoffs", in its order:

1. a model of high dimension (millions) and a strong adversary: Bulyan, where n >= 4f + 3;
2. otherwise the rule whose demand on the variance of honest gradients is the
   weakest: the smallest Δ of equation 3.13 among MDA, Krum and Median.

Two things the thesis says in passing are taken into account: MDA's search is
exponential when f grows with n, so it is passed over beyond f = 34; and of
Krum and Multi-Krum, which share one Δ, the second converges faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from garfield.core.errors import ConfigError
from garfield.gars.rule import GARS, Rule

HIGH_DIMENSION = 1_000_000
"""The thesis's "order of millions"."""

MDA_MAX_F = 34
"""1.5³⁴ is a million: as many branches as an adversary may make MDA's search try."""

_BY_VARIANCE = ("mda", "multi-krum", "median")


@dataclass(frozen=True)
class Advice:
    """How one rule stands to n inputs with f faults."""

    rule: str
    admissible: bool
    why: str
    """Why it is admissible or not, in words."""
    needs: int
    """The smallest n that tolerates f."""
    max_f: int
    """The largest f that n tolerates; −1 if not even f = 0."""
    delta: float | None
    """Δ of equation 3.13: honest gradients may vary by |∇L| / Δ. None where it is not known."""
    cost: str
    seconds: float | None
    """Time of one aggregation of n vectors of length d, where the caller has measured it."""
    choose: str
    recommended: bool
    reason: str
    """Why it is the one recommended; empty for the others."""


def advise(n: int, f: int, d: int, seconds: Mapping[str, float] | None = None) -> list[Advice]:
    """Every registered rule: the recommended first, then the admissible, then the rest."""
    if n < 1 or d < 1 or not 0 <= f < n:
        raise ConfigError(f"Advice needs n >= 1, d >= 1 and 0 <= f < n, got n={n}, f={f}, d={d}.")
    pick, reason = recommend(n, f, d)
    advices = [_about(rule, n, f, pick, reason, seconds or {}) for rule in GARS.values()]
    return sorted(advices, key=lambda advice: (not advice.recommended, not advice.admissible))


def _about(
    rule: Rule, n: int, f: int, pick: str | None, reason: str, seconds: Mapping[str, float]
) -> Advice:
    needs = rule.needs(f)
    admissible = n >= needs and (rule.robust or f == 0)
    if not rule.robust and f > 0:
        why = "not robust: one faulty row moves it anywhere"
    elif admissible:
        why = f"n = {n} meets n >= {needs}"
    else:
        why = f"needs n >= {needs}"
    return Advice(
        rule=rule.name,
        admissible=admissible,
        why=why,
        needs=needs,
        max_f=rule.max_f(n),
        delta=rule.variance_ratio(n, f) if admissible else None,
        cost=rule.cost,
        seconds=seconds.get(rule.name),
        choose=rule.choose,
        recommended=rule.name == pick,
        reason=reason if rule.name == pick else "",
    )


def recommend(n: int, f: int, d: int) -> tuple[str | None, str]:
    """The thesis's pick (None if nothing is admissible), and the way to it in words."""
    if f == 0:
        return "average", "f = 0: with no faults to tolerate, nothing beats the plain mean."
    bulyan = GARS["bulyan"].needs(f)
    if d >= HIGH_DIMENSION and n >= bulyan:
        return "bulyan", (
            f"d = {d:,} is a high dimension and n = {n} meets Bulyan's n >= 4f + 3 = {bulyan}: "
            "it is the rule that sustains large models against a strong adversary (thesis 3.3.1)."
        )
    if d >= HIGH_DIMENSION:
        ground = f"d = {d:,} calls for Bulyan, which needs n >= 4f + 3 = {bulyan}. Failing that, "
    else:
        ground = f"d = {d:,} is below the millions for which Bulyan is advised, so "
    return _by_variance(n, f, ground)


def _by_variance(n: int, f: int, ground: str) -> tuple[str | None, str]:
    deltas = {
        name: delta
        for name in _BY_VARIANCE
        if n >= GARS[name].needs(f) and (delta := GARS[name].variance_ratio(n, f)) is not None
    }
    if not deltas:
        least = min(GARS[name].needs(f) for name in _BY_VARIANCE)
        return None, f"No rule tolerates f = {f} of n = {n}: the least demanding needs {least}."
    passed_over = ""
    if "mda" in deltas and f > MDA_MAX_F and len(deltas) > 1:
        del deltas["mda"]
        passed_over = f" (MDA is passed over: its search is exponential in f, and f = {f})"
    best = min(deltas, key=lambda name: deltas[name])
    others = ", ".join(f"{name} {delta:.3g}" for name, delta in deltas.items() if name != best)
    compared = f" against {others}" if others else ""
    return best, (
        f"{ground}the variance condition decides (thesis 3.3.1): {best} asks least of honest "
        f"gradients, Δ = {deltas[best]:.3g}{compared}{passed_over}."
    )
