"""Time to share out GPUs among thousands of jobs: equation 4.1, the greedy beside PuLP with CBC.

Both solve the same random problems, and must find the same value. The thesis solves its program
with PuLP (4.3.2); the target is 50 ms for 10,000 jobs. `era-marginal` has a run for every worker
instead of two for every job. Solving alone is timed: jobs' efficiencies are given.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.timing import fastest, seconds
from garfield.core.errors import MissingDependency, RunError
from garfield.core.types import Indices, Matrix
from garfield.elastic.policy.allocation import Runs, fill, objective, two_sided
from garfield.report.plain_tables import plain_table

QUESTION = "How long does it take to share out GPUs among thousands of elastic jobs?"
TARGET_MS, TARGET_JOBS = 50.0, 10_000


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10_000], help="how many")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A row per number of jobs."""
    table = plain_table("jobs", "era, ms", "era-marginal, ms", "PuLP, ms", "times faster", right=5)
    found = []
    for count in options.jobs:
        problem = _problem(count)
        worth, gpus = problem[3], problem[5]
        values = worth[:, None] * 0.9 ** np.arange(16)
        single = Runs(np.repeat(np.arange(count), 16), values.ravel(), np.ones(16 * count, np.intp))
        none = np.zeros(count, dtype=np.intp)
        timed = fastest(
            {
                "era": lambda p=problem: fill(p[0], two_sided(*p[:5]), p[5]),
                "era-marginal": lambda z=none, s=single, g=gpus: fill(z, s, g),
            },
            lambda: None,
            budget_s=0.3 if options.quick else 2.0,
        )
        ours = {name: 1e3 * took for name, took in timed.best.items()}
        line: dict[str, Any] = {"jobs": count, "gpus": gpus, "others": timed.others, **ours}
        if count <= 1000 or not options.quick:
            line["pulp"] = 1e3 * _checked(*problem)
        ratio = line.get("pulp", 0) / ours["era"]
        cells = [f"{ours[name]:.2f}" for name in ("era", "era-marginal")]
        table.add_row(
            str(count), *cells, f"{line['pulp']:,.0f}" if "pulp" in line else "–", f"{ratio:,.0f}"
        )
        found.append({**line, "ratio": ratio})
    console.print(table)
    for line in found:
        if line["jobs"] == TARGET_JOBS:
            worst = max(line["era"], line["era-marginal"])
            word = "met" if worst < TARGET_MS else "missed"
            console.print(f"10,000 jobs in {worst:.1f} ms: target {TARGET_MS:g} ms {word}.")
    return {"solved": found, "target_ms": TARGET_MS}


def _problem(count: int) -> tuple[Indices, Indices, Indices, Matrix, Matrix, int]:
    rng = np.random.default_rng(0)
    low, high = np.ones(count, dtype=np.intp), np.full(count, 16, dtype=np.intp)
    now = rng.integers(0, 17, count)
    return low, now, high, rng.random(count), rng.integers(0, 5, count) / 5, 6 * count


def _checked(
    low: Indices, now: Indices, high: Indices, worth: Matrix, penalty: Matrix, gpus: int
) -> float:
    """Seconds of PuLP, whose solution must be worth as much as ours."""
    kept: list[Indices] = []
    took = seconds(lambda: kept.append(solved_by_pulp(low, now, high, worth, penalty, gpus)))
    ours = fill(low, two_sided(low, now, high, worth, penalty), gpus)
    values = [objective(each, now, worth, penalty) for each in (ours, kept[0])]
    if abs(values[0] - values[1]) > 1e-6 * max(1.0, abs(values[1])):
        raise RunError(f"The greedy found {values[0]}, PuLP {values[1]}.")
    return took


def solved_by_pulp(
    low: Indices, now: Indices, high: Indices, worth: Matrix, penalty: Matrix, gpus: int
) -> Indices:
    """Workers by the integer program of equations 4.1 and 4.3, as the thesis writes it."""
    try:
        import pulp
    except ImportError:
        raise MissingDependency(
            "PuLP is not installed. Install it with: pip install pulp"
        ) from None
    program = pulp.LpProblem("era", pulp.LpMaximize)
    jobs = range(len(low))
    change = [
        pulp.LpVariable(f"d{j}", int(low[j] - now[j]), int(high[j] - now[j]), pulp.LpInteger)
        for j in jobs
    ]
    size = [pulp.LpVariable(f"y{j}", 0) for j in jobs]
    program += pulp.lpSum(float(worth[j]) * change[j] - float(penalty[j]) * size[j] for j in jobs)
    program += pulp.lpSum(change) == min(gpus, int(high.sum())) - int(now.sum())
    for j in jobs:
        program += size[j] >= change[j]
        program += size[j] >= -change[j]
    program.solve(pulp.PULP_CBC_CMD(msg=False))
    return np.array([int(now[j] + round(change[j].value())) for j in jobs])
