"""MDA's exact search for the tightest n − f rows, the distances being known.

The search is exponential in f in the worst case, so its time depends on how
the rows lie: spread out (no set is much tighter than another), or clustered
with f outliers. Per seed the fastest of three calls counts.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.timing import seconds

QUESTION = "How long does exact MDA search beyond the distances?"
CASES = ((30, 10, 10.0), (60, 20, 1000.0))  # n, f, and the target in ms
D = 100


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--seeds", type=int, default=20, help="random inputs per case (20)")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print median and worst over the seeds; all times are returned."""
    title = f"closest_rows(sq_dists, f), d = {D}, fastest of 3 calls per seed"
    table = Table("rows", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("n", "f", "seeds", "median ms", "worst ms", "target ms"):
        table.add_column(heading, justify="right")
    table.add_column("")
    seeds = 5 if options.quick else options.seeds
    cases = []
    for n, f, target_ms in CASES:
        for kind in (spread, clustered):
            inputs = [kind(n, f, np.random.default_rng(seed)) for seed in range(seeds)]
            times_ms = [_search_ms(rows, f) for rows in inputs]
            middle, worst = statistics.median(times_ms), max(times_ms)
            mark = "[green]met" if worst <= target_ms else "[bold red]missed"
            numbers = (f"{middle:.2f}", f"{worst:.2f}", f"{target_ms:g}")
            table.add_row(kind.__name__, str(n), str(f), str(seeds), *numbers, mark)
            cases.append({"rows": kind.__name__, "n": n, "f": f, "ms": times_ms})
    console.print(table)
    return {"d": D, "cases": cases}


def spread(n: int, f: int, rng: np.random.Generator) -> Any:
    """(n, D) standard normal: all about equally far apart."""
    return rng.standard_normal((n, D))


def clustered(n: int, f: int, rng: np.random.Generator) -> Any:
    """The same, but f rows have been moved away, each its own way."""
    rows = rng.standard_normal((n, D))
    rows[rng.permutation(n)[:f]] += 10.0 * rng.standard_normal((f, D))
    return rows


def _search_ms(rows: Any, f: int) -> float:
    from garfield.gars.mda import closest_rows

    differences = rows[:, None, :] - rows[None, :, :]
    sq_dists = (differences**2).sum(axis=-1)  # (n, n)
    return min(seconds(lambda: closest_rows(sq_dists, f)) for _ in range(3)) * 1e3
