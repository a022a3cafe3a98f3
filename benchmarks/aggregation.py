"""Every rule beside the plain mean, beside ByzFL, and the memory it takes.

The mean and all rules take turns on the same rows (see timing.py); a ratio is
the rule's fastest call over the mean's fastest. ByzFL's ratio is taken the same
way in its own process, right after, and "times faster" divides the two ratios.
GARFIELD_ISA=sse2, say, measures the kernels of a narrower instruction set.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from benchmarks.tables import Byzfl, Cell, Line, cell_table, short, targets_table
from benchmarks.timing import Call, Timed, fastest
from benchmarks.workers import Worker, byzfl_python
from garfield.gars import GARS, Rule, parse

QUESTION = "What does robustness cost beside the plain mean?"
CHAIN = "nnm+multi-krum"
SEED = 0
NOTES = """\
Inputs are standard normal, float32; every core is used. Rounds are shuffled.
ratio         to the time of torch.mean(rows, 0), both the fastest of all calls
as list       the same, rows given as n tensors instead of one (n, d) tensor
ByzFL ratio   to torch.mean in ByzFL's own process; – if it has no such rule
times faster  ByzFL ratio / ratio; ? where other processes disturbed either
extra memory  peak beyond the input, result included; 1 is a vector (4d bytes)
"""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--n", type=int, nargs="+", help="numbers of rows (7 17 31)")
    group.add_argument("--d", type=float, nargs="+", help="lengths of the vectors (1e5 1e6 1e7)")
    group.add_argument("--rules", nargs="+", help=f"rules or chains (all, and {CHAIN})")
    group.add_argument("--no-byzfl", action="store_true", help="leave ByzFL out")
    limit = "skip a ByzFL rule of which one call takes longer (30 s)"
    group.add_argument("--byzfl-limit", type=float, default=30.0, metavar="S", help=limit)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print one table per size and the targets; all numbers are returned."""
    cells = []
    for cell in _cells(options, console):
        console.print(cell_table(cell))
        cells.append(cell)
    if targets := targets_table(cells):
        console.print(targets)
    times = [
        {"n": cell.n, "f": cell.f, "d": cell.d, "rule": line.rule, "ms": line.ms,
         "ratio": line.ratio}
        for cell in cells
        for line in cell.lines
    ]  # fmt: skip
    return {"seed": SEED, "cells": [asdict(cell) for cell in cells], "times": times}


def _cells(options: argparse.Namespace, console: Console) -> Iterator[Cell]:
    names = options.rules or [*GARS, CHAIN]
    rules = {name: parse(name) for name in names}  # a misspelt one is refused at once
    sizes_n = options.n or ([7, 17] if options.quick else [7, 17, 31])
    sizes_d = [int(d) for d in options.d or ([1e5, 1e6] if options.quick else [1e5, 1e6, 1e7])]
    budget_s = 2.0 if options.quick else 6.0
    with ExitStack() as stack:
        memory = stack.enter_context(Worker("benchmarks.memory"))
        python = None if options.no_byzfl else byzfl_python(console.print)
        byzfl = python and stack.enter_context(Worker("benchmarks.byzfl_worker", python))
        console.print(NOTES, highlight=False)
        for d in sizes_d:
            for n in sizes_n:
                where = {"n": n, "f": max(0, (n - 3) // 4), "d": d, "seed": SEED}
                with console.status(f"n = {n}, d = {short(d)}"):
                    timed = _timed(where, rules, budget_s)
                    extra = memory.ask({**where, "rules": names})
                    limits = {"limit_s": options.byzfl_limit, "budget_s": budget_s / 6}
                    jobs = {name: {**where, **limits, "rule": name} for name in names}
                    theirs = {name: byzfl.ask(job) if byzfl else {} for name, job in jobs.items()}
                yield _cell(where, names, timed, extra, theirs)


def _cell(
    where: dict[str, int],
    names: Sequence[str],
    timed: Timed[tuple[str, str]],
    extra: dict[str, Any],
    theirs: dict[str, dict[str, Any]],
) -> Cell:
    lines = [
        Line(
            name,
            ms=timed.best[name, "matrix"] * 1e3,
            ratio=timed.best[name, "matrix"] / timed.baseline,
            list_ratio=timed.best[name, "list"] / timed.baseline,
            byzfl=Byzfl(**theirs[name]),
            extra_bytes=extra.get(name),
        )
        for name in names
    ]
    return Cell(
        where["n"],
        where["f"],
        where["d"],
        mean_ms=timed.baseline * 1e3,
        mean_out_ms=timed.best["mean", "out"] * 1e3,
        rounds=timed.rounds,
        others=timed.others,
        lines=lines,
    )


def _timed(
    where: dict[str, int], rules: Mapping[str, Rule], budget_s: float
) -> Timed[tuple[str, str]]:
    """Every rule on a matrix and on a list, beside the mean."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))  # garfield takes all cores anyway
    seed = torch.Generator().manual_seed(where["seed"])
    rows = torch.randn(where["n"], where["d"], generator=seed)
    apart = [row.clone() for row in rows]
    out = torch.empty(where["d"])
    calls: dict[tuple[str, str], Call] = {("mean", "out"): partial(torch.mean, rows, 0, out=out)}
    for name, rule in rules.items():
        calls[name, "matrix"] = partial(rule, rows, where["f"])
        calls[name, "list"] = partial(rule, apart, where["f"])
    return fastest(calls, partial(torch.mean, rows, 0), budget_s=budget_s)
