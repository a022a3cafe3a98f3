"""How strong little-is-enough must be, in deviations z, to break each rule, and how strong at most.

On real gradients (mnist_cnn early in its training on Fashion-MNIST, batches of 32), f lies at
μ + z σ stand beside n − f honest rows. A rule counts as broken where its answer is farther from
the honest mean than that is long: a server that did not move at all would do better. Rules that
select rows fall for a range of z, below which the lie does no harm and above which it is seen;
those that only bound a lie fall from some z on (a + in the table). Each rule meets as many
liars as it bears among n, an average the half. The middle of several rounds counts; beside it
stands the error where nobody lies, which for a rule that picks one row is noise enough.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from garfield.attacks import parse
from garfield.attacks.little_is_enough import z_max
from garfield.gars import GARS
from garfield.gars import parse as rule_named
from garfield.report.example_gradients import example_rounds
from garfield.report.resilience import FAIR, NOBODY, Cell, Round, measure

QUESTION = "At which z does little-is-enough break each rule?"
CHAINS = ("nnm+multi-krum", "nnm+median", "nnm+trimmed-mean")


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--strength-n", type=int, default=17, help="workers (17)")
    group.add_argument("--strength-f", type=int, help="liars among them (what each rule bears)")
    group.add_argument("--strength-rounds", type=int, default=3, help="rounds of gradients (3)")
    group.add_argument("--strengths", type=int, default=13, help="values of z, 0.1 to 20 (13)")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print the least and the largest z that breaks each rule; all errors are returned."""
    n, count, rounds = options.strength_n, options.strengths, options.strength_rounds
    if options.quick:
        count, rounds = 7, 1
    seen = [np.vstack([now.honest, now.own]) for now in example_rounds(n, 1, rounds=rounds)]
    rules = {}
    for name in (*GARS, *CHAINS):
        rule = rule_named(name)
        f = options.strength_f or (rule.max_f(n) if GARS[name.split("+")[-1]].robust else n // 2)
        strengths = [float(z) for z in [z_max(n, f), *np.geomspace(0.1, 20, count)]]
        lies = {f"{z}": parse(f"little-is-enough(z={z})") for z in strengths}
        cut = [Round(rows[: n - f], rows[n - f :]) for rows in seen]
        cells = measure(cut, {name: rule}, lies).of(name)
        rules[name] = {"f": f, **_judged(cells, strengths)}
    console.print(_table(rules, n))
    return {"n": n, "rounds": rounds, "rules": rules}


def _judged(cells: Mapping[str, Cell], strengths: list[float]) -> dict[str, Any]:
    """The errors by z, and the range that breaks; no errors where n is too small for the rule."""
    errors = {z: cells[f"{z}"].error for z in strengths}
    known = {z: error for z, error in errors.items() if error is not None}
    if not known:
        return {"errors": {}}
    broken = sorted(z for z, error in known.items() if not error < FAIR)
    worst = max(known, key=lambda z: math.inf if math.isnan(known[z]) else known[z])
    return {
        "errors": known, "nobody": cells[NOBODY].error, "z_max": strengths[0],
        "at_z_max": known[strengths[0]], "worst_z": worst, "worst": known[worst],
        "from_z": broken[0] if broken else None, "to_z": broken[-1] if broken else None,
    }  # fmt: skip


def _table(rules: Mapping[str, dict[str, Any]], n: int) -> Table:
    title = (
        f"n = {n}; errors, 1 being that of a server that does not move: quiet where nobody lies, "
        "then at the paper's own z, z*; broken from a z to a z"
    )
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    made.add_column("rule", no_wrap=True, min_width=max(map(len, rules)))
    for heading in ("f", "quiet", "z*", "error", "from", "to", "worst", "at z"):
        made.add_column(heading, justify="right", no_wrap=True)
    for rule, found in rules.items():
        if not found["errors"]:
            made.add_row(rule, str(found["f"]), "n is too small for it")
            continue
        to = _number(found["to_z"]) + "+" * (found["to_z"] == max(found["errors"]))
        made.add_row(
            rule, str(found["f"]), _number(found["nobody"]), _number(found["z_max"]),
            _number(found["at_z_max"]), _number(found["from_z"]), to,
            _number(found["worst"]), _number(found["worst_z"]),
        )  # fmt: skip
    return made


def _number(z: float | None) -> str:
    return "–" if z is None else f"{z:.2f}"
