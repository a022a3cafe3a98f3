"""Which rule should be the default: the one whose worst case is best, its cost counted.

Every rule meets every attack on data that are dealt alike (iid) and unlike (dirichlet), in
simulated runs of `ssmw` on digits with digits_mlp: eleven workers, two of whom lie, and a rule
that is told so; under "none" all are honest, and the rule is told f = 2 all the same. What counts
is the accuracy on the test set at the end, the mean over the seeds. A rule's worst case is its
worst cell of attack and partition. Cost is processor time of one call, as a multiple of the
average's in the same rounds: time that other processes take is not in it. A run that has ended is
kept in results/default_rule/ and not run again (--fresh does), so an interrupted benchmark goes on
where it was; seeds come one after the other, so that fewer of them give the whole table too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.kept_runs import accuracy_of
from garfield.apps.groups import NONE
from garfield.apps.settings import Settings
from garfield.gars import parse

QUESTION = "Which rule loses least in its worst case, and should be the default?"
RULES = (
    "trimmed-mean", "nnm+trimmed-mean", "multi-krum", "nnm+multi-krum", "median", "mda",
    "geometric-median", "centered-clipping", "bulyan",
)  # fmt: skip
ATTACKS = (
    NONE, "reverse", "random", "little-is-enough", "fall-of-empires", "mimic",
    "optimal-little-is-enough",
)  # fmt: skip
PARTITIONS = ("iid", "dirichlet(alpha=1.0)", "dirichlet(alpha=0.1)")
N, F = 11, 2


@dataclass(frozen=True)
class Cell:
    """What one rule meets: a lie, and how data are dealt."""

    rule: str
    attack: str
    partition: str

    def settings(self, steps: int, seed: int) -> Settings:
        return Settings.of(
            app="ssmw", data="digits", model="digits_mlp", gar=self.rule, workers=N, f_workers=F,
            byzantine_workers=0 if self.attack == NONE else F, worker_attack=self.attack,
            partition=self.partition, steps=steps, seed=seed, learning_rate=0.1,
            evaluate_every=0, simulate=True,
        )  # fmt: skip


Accuracies = Mapping[Cell, Sequence[float]]
"""Of each seed, in order."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--default-rules", nargs="+", default=list(RULES), help="(nine)")
    group.add_argument("--default-attacks", nargs="+", default=list(ATTACKS), help="(seven)")
    group.add_argument("--default-partitions", nargs="+", default=list(PARTITIONS), help="(three)")
    group.add_argument("--default-seeds", type=int, default=5, help="how many (5)")
    group.add_argument("--default-steps", type=int, default=100, help="(100)")
    group.add_argument("--default-d", type=int, default=1_000_000, help="length to cost at (1e6)")
    group.add_argument("--fresh", action="store_true", help="run again what has been run")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per rule, worst case first; all accuracies are returned."""
    seeds, steps = options.default_seeds, options.default_steps
    if options.quick:
        seeds, steps = 1, 10
    rules, attacks, partitions = (
        options.default_rules, options.default_attacks, options.default_partitions,
    )  # fmt: skip
    cells = [Cell(*each) for each in product(rules, attacks, partitions)]
    plain = [Cell("average", NONE, partition) for partition in partitions]
    found: dict[Cell, list[float]] = {cell: [] for cell in (*plain, *cells)}
    for seed in range(seeds):
        for done, cell in enumerate(found):
            text = f"seed {seed}, {done} of {len(found)}: {cell.rule}, {cell.attack}"
            with console.status(text):
                settings = cell.settings(steps, seed)
                found[cell].append(accuracy_of(settings, "default_rule", fresh=options.fresh))
    costs = _costs(rules, options.default_d)
    console.print(_table(found, rules, attacks, partitions, costs))
    lines = [
        {"rule": c.rule, "attack": c.attack, "partition": c.partition, "accuracies": values}
        for c, values in found.items()
    ]
    return {
        "n": N, "f": F, "steps": steps, "seeds": seeds, "costs": costs, "d": options.default_d,
        "cells": lines, "worst": {rule: worst_of(rule, found)[1] for rule in rules},
    }  # fmt: skip


def worst_of(rule: str, found: Accuracies) -> tuple[Cell, float]:
    """The cell of a rule that it does worst in, by the mean over seeds, and how it does there."""
    means = {cell: statistics.fmean(v) for cell, v in found.items() if cell.rule == rule}
    worst = min(means, key=lambda cell: means[cell])
    return worst, means[worst]


def _costs(rules: Sequence[str], d: int, rounds: int = 7) -> dict[str, float]:
    """Processor time of a call, the least of some, as a multiple of the average's."""
    rows = np.random.default_rng(0).standard_normal((N, d), dtype=np.float32)
    named = {name: parse(name) for name in ("average", *rules)}
    times: dict[str, list[float]] = {name: [] for name in named}
    for name, rule in [*named.items()] * rounds:
        began = time.process_time()
        rule(rows, F)
        times[name].append(time.process_time() - began)
    least = {name: min(taken) for name, taken in times.items()}
    return {name: least[name] / least["average"] for name in rules}


def _table(
    found: Accuracies,
    rules: Sequence[str],
    attacks: Sequence[str],
    partitions: Sequence[str],
    costs: Mapping[str, float],
) -> Table:
    """Accuracies in %: a column per attack, in it one number per partition."""
    plain = " ".join(_percent(found, Cell("average", NONE, each)) for each in partitions)
    title = (
        f"accuracy in % with {' / '.join(partitions)}; {N} workers, f = {F}\n"
        f"average, nobody lying: {plain}"
    )
    table = Table("rule", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in (*attacks, "worst", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for rule in sorted(rules, key=lambda rule: -worst_of(rule, found)[1]):
        shown = (
            " ".join(_percent(found, Cell(rule, attack, each)) for each in partitions)
            for attack in attacks
        )
        worst = f"{100 * worst_of(rule, found)[1]:.0f}"
        table.add_row(rule, *shown, worst, f"{costs[rule]:.1f}")
    return table


def _percent(found: Accuracies, cell: Cell) -> str:
    return f"{100 * statistics.fmean(found[cell]):.0f}"
