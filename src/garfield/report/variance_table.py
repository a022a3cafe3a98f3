"""What rules allow honest gradients to vary, beside what they do: for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from garfield.gars import Rule
from garfield.gars.variance import Margin, margin
from garfield.report.plain_tables import plain_table


@dataclass(frozen=True)
class Verdict:
    """How one rule stands to the condition."""

    rule: str
    margin: Margin | None
    """None where the rule's Δ is not known, or n is too small for it."""
    words: str


def verdicts(
    rules: Mapping[str, Rule], ratios: Sequence[float], *, n: int, f: int, batch: int
) -> list[Verdict]:
    """Judge each rule by these σ / |∇L|; the least demanding first."""
    found = []
    for name, rule in rules.items():
        if n < rule.needs(f):
            found.append(Verdict(name, None, f"needs n ≥ {rule.needs(f)}, here n = {n}"))
            continue
        stands = margin(rule, ratios, n=n, f=f)
        words = "not known: equation 3.13 has no Δ for it"
        if stands is not None:
            words = _words(stands, _middle(ratios), batch)
        found.append(Verdict(name, stands, words))
    return sorted(found, key=lambda each: each.margin.delta if each.margin else math.inf)


def _words(stands: Margin, ratio: float, batch: int) -> str:
    steps = len(stands.kappas)
    held = round(stands.share * steps)
    if held == steps:
        return f"held at all {steps} steps, by a factor of {_short(stands.worst)} at the least"
    missed = stands.delta * ratio
    if missed == math.inf:
        return f"held at {held} of {steps} steps: the gradient drowns in noise"
    if missed <= 1:
        return f"held at {held} of {steps} steps"
    return (
        f"held at {held} of {steps} steps: honest gradients vary {_short(missed)} times too much; "
        f"with iid data, batches of about {_rounded(batch * missed**2):,} would do"
    )


def variance_table(found: Sequence[Verdict], ratios: Sequence[float]) -> Table:
    """One line per rule: what is measured, what is allowed, how often that was enough."""
    table = plain_table()
    table.add_column("rule", style="bold", no_wrap=True)
    for heading in ("Δ", "σ/|∇L| allowed", "measured", "held"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    measured = _short(_middle(ratios))
    for each in found:
        cells = ["–", "–", measured, "–"]
        if each.margin is not None:
            delta = each.margin.delta
            allowed = _short(1 / delta) if delta else "∞"
            cells = [_short(delta), allowed, measured, f"{100 * each.margin.share:.0f} %"]
        table.add_row(*(Text(cell) for cell in (each.rule, *cells, each.words)))
    return table


def variance_json(
    found: Sequence[Verdict], steps: Sequence[int], ratios: Sequence[float]
) -> dict[str, Any]:
    """The same for scripts; a ratio that is not finite is null."""
    return {
        "ratio": _middle(ratios),
        "steps": [{"step": s, "variance_ratio": r} for s, r in zip(steps, ratios, strict=True)],
        "rules": [
            {
                "rule": each.rule,
                "delta": each.margin and each.margin.delta,
                "held": each.margin and each.margin.share,
                "worst_kappa": each.margin and each.margin.worst,
                "verdict": each.words,
            }
            for each in found
        ],
    }


def _middle(ratios: Sequence[float]) -> float:
    return sorted(math.inf if math.isnan(r) else r for r in ratios)[len(ratios) // 2]


def _short(value: float) -> str:
    return "∞" if value == math.inf else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _rounded(samples: float) -> int:
    """Two digits: it is an estimate."""
    unit = int(10 ** max(0, math.floor(math.log10(samples)) - 1))
    return math.ceil(samples / unit) * unit
