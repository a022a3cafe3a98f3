"""`garfield resilience`: every rule under every attack, on gradients of a real model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from garfield.cli.shared import AsJson, WholeNumber, console, names, print_json, progress

if TYPE_CHECKING:
    from garfield.attacks import Attack
    from garfield.gars import Rule
    from garfield.report.resilience import Resilience

_CHAINS = ("nnm+multi-krum", "nnm+trimmed-mean")
_KNOWING = ("nothing", "own", "all")


def resilience(
    *,
    n: Annotated[WholeNumber, Parameter(help="Workers, attackers included.")] = 17,
    f: Annotated[WholeNumber, Parameter(help="Attackers among them.")] = 3,
    rules: Annotated[
        list[str] | None, Parameter(help="Rules or chains, with commas; all if not given.")
    ] = None,
    attacks: Annotated[
        list[str] | None, Parameter(help="Attacks, with commas; all if not given.")
    ] = None,
    rounds: Annotated[WholeNumber, Parameter(help="Rounds of training that give gradients.")] = 3,
    seed: Annotated[WholeNumber, Parameter(help="The same seed gives the same numbers.")] = 0,
    picture: Annotated[
        Path | None, Parameter(metavar="PATH", help="Also draw it: .png, .svg or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each rule lands from the honest mean under each attack."""
    from garfield.report import heatmap

    if picture is not None:
        heatmap.check(picture)
    result = _measured(n, f, rounds, seed, _rules(rules), _attacks(attacks))
    if picture is not None:
        heatmap.draw(result, picture)
    _show(result, seed, picture, as_json)


def _rules(texts: list[str] | None) -> dict[str, Rule]:
    from garfield.gars import GARS, parse

    if texts is not None:
        return {name: parse(name) for name in names(texts)}
    baselines = [name for name, rule in GARS.items() if not rule.robust]
    return {name: parse(name) for name in dict.fromkeys([*baselines, *GARS, *_CHAINS])}


def _attacks(texts: list[str] | None) -> dict[str, Attack]:
    """Those named, or all of them, from the blindest to the one that knows everything."""
    from garfield.attacks import ATTACKS, parse

    if texts is not None:
        return {name: parse(name) for name in names(texts)}
    every = [attack for name, attack in ATTACKS.items() if name == attack.name]
    every.sort(key=lambda attack: _KNOWING.index(attack.knows))
    return {attack.name: attack for attack in every}


def _measured(
    n: int, f: int, rounds: int, seed: int, rules: dict[str, Rule], attacks: dict[str, Attack]
) -> Resilience:
    from garfield.report.example_gradients import example_rounds
    from garfield.report.resilience import measure

    with progress() as bar:
        training = bar.add_task("training a small CNN", total=rounds)
        gradients = []
        for now in example_rounds(n, f, rounds=rounds, attacks=attacks.values(), seed=seed):
            gradients.append(now)
            bar.advance(training)
        task = bar.add_task("attacking every rule", total=len(rules) * (1 + len(attacks)))
        return measure(gradients, rules, attacks, seed=seed, step=lambda: bar.advance(task))


def _show(result: Resilience, seed: int, picture: Path | None, as_json: bool) -> None:
    from garfield.report.findings import findings
    from garfield.report.resilience_table import caption, resilience_tables

    if as_json:
        numbers = {"n": result.n, "f": result.f, "d": result.d, "rounds": result.rounds}
        told = {"caption": caption(result), "findings": findings(result)}
        print_json({**numbers, "seed": seed, **told, "cells": result.cells})
        return
    out = console()
    for table in resilience_tables(result, out.width):
        out.print(table)
        out.print()
    out.print(caption(result), style="dim")
    out.print()
    for sentence in findings(result):
        out.print(sentence)
    if picture is not None:
        out.print(f"Drawn to {picture}.")
