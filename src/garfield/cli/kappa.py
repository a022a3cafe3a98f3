"""`garfield kappa`: how robust a rule is, as one number, searched for and beside theory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from garfield.cli.shared import (
    AsJson,
    WholeNumber,
    console,
    names,
    print_json,
    print_note,
    progress,
)

if TYPE_CHECKING:
    from garfield.gars import Rule
    from garfield.gars.robustness import Kappa

_CHAINS = ("nnm+median", "nnm+trimmed-mean", "nnm+multi-krum")


def kappa(
    *,
    rule: Annotated[
        list[str] | None,
        Parameter(help="A rule or chain; several with commas, or by giving it again. (multi-krum)"),
    ] = None,
    n: Annotated[WholeNumber, Parameter(help="Rows, the liars' included.")] = 17,
    f: Annotated[WholeNumber, Parameter(help="Liars among them.")] = 3,
    every: Annotated[
        bool, Parameter(name="--all", help="Every rule that n allows, and some chains.")
    ] = False,
    budget: Annotated[
        WholeNumber,
        Parameter(help="Calls of each rule.", validator=validators.Number(gte=1)),
    ] = 10_000,
    seconds: Annotated[
        float | None, Parameter(help="End the search of each rule after so long, if not done.")
    ] = None,
    seed: Annotated[WholeNumber, Parameter(help="The same seed finds the same.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Search for the worst that f liars can do to a rule, and show it beside theory.

    The number is κ of (f, κ)-robustness: the answer's squared distance to the honest mean is at
    most κ times the honest rows' mean squared deviation. The search tries every attack on honest
    rows of many kinds, and then moves all rows freely.
    """
    from garfield.report.kappa_table import kappa_caption, kappa_json, kappa_table

    rules = _rules(rule, n, f, every)
    found = _searched(rules, n, f, budget, math.inf if seconds is None else seconds, seed)
    if as_json:
        print_json({"seed": seed, "budget": budget, "rules": [kappa_json(each) for each in found]})
        return
    out = console()
    out.print(kappa_table(found))
    out.print(kappa_caption(found), style="dim")


def _rules(texts: list[str] | None, n: int, f: int, every: bool) -> list[Rule]:
    """Those named, or all that are robust; what n does not allow is refused, or told and left."""
    from garfield.gars import GARS, parse

    if not every:
        rules = [parse(name) for name in names(texts or ["multi-krum"])]
        for rule in rules:
            rule.check(n, f)
        return rules
    known = [parse(name) for name in (*GARS, *_CHAINS)]
    robust = [rule for rule in known if rule.robust]
    too_few = [f"{rule.name} (n ≥ {rule.needs(f)})" for rule in robust if rule.needs(f) > n]
    if too_few:
        print_note(f"n = {n} is too few for f = {f} with: {', '.join(too_few)}.")
    rules = [rule for rule in robust if rule.needs(f) <= n]
    if not rules:
        robust[0].check(n, f)  # says how many it would take
    return rules


def _searched(
    rules: list[Rule], n: int, f: int, budget: int, seconds: float, seed: int
) -> list[Kappa]:
    from garfield.gars.robustness import worst_kappa

    found = []
    with progress() as bar:
        task = bar.add_task("searching", total=budget * len(rules))
        for done, rule in enumerate(rules):
            bar.update(task, description=f"searching: {rule.name}", completed=done * budget)

            def step(calls: int, before: int = done * budget) -> None:
                bar.update(task, completed=before + calls)

            found.append(
                worst_kappa(rule, n=n, f=f, budget=budget, seconds=seconds, seed=seed, step=step)
            )
    return found
