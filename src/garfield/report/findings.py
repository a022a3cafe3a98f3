"""What a table of errors says, in a few sentences for someone who sees it the first time."""

from __future__ import annotations

import math
from statistics import median

from garfield.report.resilience import NOBODY, Resilience, grade


def shown(error: float) -> str:
    """An error in five characters or so."""
    if math.isnan(error):
        return "nan"
    if math.isinf(error):
        return "∞"
    if error < 9.995:
        return f"{error:.2f}"
    return f"{error:.0f}" if error < 999.5 else f"{error:.0e}".replace("e+0", "e").replace("+", "")


def worst(result: Resilience, rule: str) -> tuple[str, float] | None:
    """The attack that does most harm to a rule, and how much; None where n is too small."""
    errors = _errors(result, rule)
    return max(errors.items(), key=lambda item: _harm(item[1])) if errors else None


def findings(result: Resilience, baseline: str = "average") -> list[str]:
    """Two or three sentences: what happens to averaging, who holds, what is hardest."""
    robust = [rule for rule in result.rules if rule != baseline and _errors(result, rule)]
    sentences = []
    if baseline in result.rules and _errors(result, baseline):
        sentences.append(_of_baseline(result, baseline))
    if robust:
        sentences.append(_of_rules(result, robust))
    if len(robust) > 2:  # of fewer, there is no middle to speak of
        sentences.append(_of_attacks(result, robust))
    return sentences


def _of_baseline(result: Resilience, baseline: str) -> str:
    errors = _errors(result, baseline)
    broken = [attack for attack, error in errors.items() if grade(error) == "bad"]
    attack, error = max(errors.items(), key=lambda item: _harm(item[1]))
    if not broken:
        return f"No attack does the plain {baseline} much harm ({attack}: {shown(error)})."
    return (
        f"{result.f} liars among {result.n} ruin the plain {baseline} in {len(broken)} of "
        f"{len(errors)} attacks: it lands farther from the honest mean than if it had not moved "
        f"at all (worst: {attack}, {shown(error)})."
    )


def _of_rules(result: Resilience, rules: list[str]) -> str:
    most = {rule: found for rule in rules if (found := worst(result, rule))}
    lost = [rule for rule in rules if grade(most[rule][1]) == "bad"]
    best = min(rules, key=lambda rule: _harm(most[rule][1]))
    attack, error = most[best]
    if len(rules) == 1:
        return f"Under {attack}, its worst case, {best} is {shown(error)} off."
    why = [f"{rule}, {shown(_calm(result, rule))} off already with nobody lying" for rule in lost]
    but = f" (the others: {'; '.join(why)})" if lost else ""
    return (
        f"{len(rules) - len(lost)} of {len(rules)} robust rules always do better than not "
        f"moving{but}; the steadiest is {best}, never more than {shown(error)} off ({attack})."
    )


def _of_attacks(result: Resilience, rules: list[str]) -> str:
    """The attack that is hardest for the middle rule, and what robustness costs without one."""
    by_attack = {
        attack: median(_harm(_errors(result, rule)[attack]) for rule in rules)
        for attack in result.attacks
        if attack != NOBODY
    }
    hardest = max(by_attack, key=lambda attack: by_attack[attack])
    price = median(_calm(result, rule) for rule in rules)
    return (
        f"Hardest for them is {hardest}: half of the rules err by {shown(by_attack[hardest])} or "
        f"more. With nobody lying, half of them stay within {shown(price)} of the mean."
    )


def _calm(result: Resilience, rule: str) -> float:
    """The error when nobody lies."""
    return _harm(result.of(rule)[NOBODY].error or 0.0)


def _errors(result: Resilience, rule: str) -> dict[str, float]:
    return {
        attack: cell.error
        for attack, cell in result.of(rule).items()
        if attack != NOBODY and cell.error is not None
    }


def _harm(error: float) -> float:
    return math.inf if math.isnan(error) else error
