"""Our simulation beside ByzFL's, and beside torch's own limit: the same model, workers, batch.

All take turns of some steps each, with all cores, evaluation off; a turn's first
step is not counted. ByzFL trains the same function in its own process. Liars make up
their vectors from the honest ones, and compute nothing, here as there. The limit is what torch
takes for a step's gradients alone, `benchmarks/torch_limit.py`: the fastest way that gives every
worker a gradient of its own is what a whole step of ours is a share of.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from itertools import pairwise
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.tables import QUIET
from benchmarks.timing import _others_s
from benchmarks.torch_limit import WAYS
from benchmarks.workers import Worker, byzfl_python
from garfield.apps.settings import Settings
from garfield.core.errors import MissingDependency

QUESTION = "How fast is simulated training beside ByzFL's?"
N, F, BATCH = 20, 3, 32
ATTACK = "fall-of-empires"  # the honest mean, times −0.1: the same formula in both
RULES = ("trimmed-mean", "multi-krum")
TARGET = 3.0  # times ByzFL's steps a second
BYZFL_WAYS = ("torchvision", "tensors")
_ONE_GRADIENT = "one batch"  # where workers have none of their own: shown, and no limit


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--simulated-rules", nargs="+", choices=RULES, default=list(RULES))
    group.add_argument("--many", type=int, default=200, help="workers in our own last line (200)")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One table; the seconds of all steps are returned."""
    python = byzfl_python(console.print)
    if python is None:
        raise MissingDependency("ByzFL is what this benchmark compares with.")
    turns, steps = (2, 4) if options.quick else (5, 8)
    table = _table()
    results = []
    torch_alone = Worker("benchmarks.torch_limit")
    with Worker("benchmarks.byzfl_simulation", python) as byzfl, torch_alone as limit:
        for rule in options.simulated_rules:
            with console.status(f"mnist_cnn, {N} workers, {rule}"):
                found = _take_turns(byzfl, limit, rule, turns, steps)
            _add_rows(table, rule, found)
            results.append({"rule": rule, "n": N, "f": F, "batch": BATCH, **found})
    with console.status(f"{options.many} workers"):
        many = statistics.median(_ours(options.many, options.simulated_rules[0], steps))
    per_worker = f"{many / options.many * 1e3:.1f} ms a worker"
    table.add_row(f"Garfield, {options.many} workers", "", f"{1 / many:.2f}", "", per_worker)
    console.print(table)
    return {"runs": results, "many": {"n": options.many, "step_s": many}}


def _take_turns(byzfl: Worker, limit: Worker, rule: str, turns: int, steps: int) -> dict[str, Any]:
    """Seconds of every step by whose it is, and how much others disturbed."""
    times: dict[str, list[float]] = {"garfield": []}
    times |= {way: [] for way in (*BYZFL_WAYS, *WAYS)}
    job = {"n": N, "f": F, "batch": BATCH, "rule": rule, "attack": ATTACK, "steps": steps + 1}
    bare = {"n": N - F, "batch": BATCH, "steps": steps + 1}
    differs = max(limit.ask({**bare, "way": way})["differs"] for way in WAYS)  # and warm up
    theirs_s, began, began_busy = 0.0, time.perf_counter(), _others_s()
    for _ in range(turns):
        times["garfield"] += _ours(N, rule, steps)
        for way in BYZFL_WAYS:
            answer = byzfl.ask({**job, "images": way})
            times[way] += answer["times_s"][1:]
            theirs_s += answer["cpu_s"]
        for way in WAYS:
            answer = limit.ask({**bare, "way": way})
            times[way] += answer["times_s"][1:]
            theirs_s += answer["cpu_s"]
    spent_s = (time.perf_counter() - began) * (os.cpu_count() or 1)
    others = max(0.0, (_others_s() - began_busy - theirs_s) / spent_s)
    return {"times_s": times, "others": others, "compiled_differs": differs}


def _ours(n: int, rule: str, steps: int) -> list[float]:
    """Seconds of each step, on the images that ship with the package."""
    import torch

    from garfield.kernels import set_threads
    from garfield.launch.simulate import simulate
    from garfield.runs.process import keep_heap

    cores = len(os.sched_getaffinity(0))
    keep_heap()  # as `garfield train --simulate` does
    torch.set_num_threads(1)  # gradients are computed side by side instead
    set_threads(cores)
    settings = Settings.of(
        model="mnist_cnn", data="fashion-small", workers=n, byzantine_workers=F, batch=BATCH,
        gar=rule, worker_attack=ATTACK, steps=steps + 2, evaluate_every=0, simulate=True,
    )  # fmt: skip
    at: list[float] = []
    simulate(settings, lambda event: at.append(time.perf_counter()), threads=cores)
    told = at[:-1]  # the last step is told after the evaluation that ends every run
    return [later - sooner for sooner, later in pairwise(told)]


def _table() -> Table:
    title = f"mnist_cnn, {N} workers, {F} of them lying ({ATTACK}), batch {BATCH}"
    table = Table("simulation", "rule", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("steps/s", justify="right")
    table.add_column("times faster", justify="right")
    table.add_column("")
    return table


def _add_rows(table: Table, rule: str, found: dict[str, Any]) -> None:
    """The median step of each; the target is for ByzFL as its own program runs."""
    medians = {who: statistics.median(times) for who, times in found["times_s"].items()}
    ours = medians["garfield"]
    least = min(medians[way] for way in WAYS if way not in (_ONE_GRADIENT, "compiled"))
    share = f"torch's gradients alone are {least / ours:.0%} of a step"
    table.add_row("Garfield", rule, f"{1 / ours:.2f}", "", share)
    doubt = " ?" if found["others"] > QUIET else ""
    for way in BYZFL_WAYS:
        ratio = medians[way] / ours
        met = "[green]met" if ratio >= TARGET else "[bold red]missed"
        mark = f"at least {TARGET:g}: {met}[/]{doubt}" if way == BYZFL_WAYS[0] else ""
        name = f"ByzFL, images by {way}" if mark else f"ByzFL, images as {way}"
        table.add_row(name, rule, f"{1 / medians[way]:.2f}", f"{ratio:.1f}{doubt}", mark)
    notes = {
        "compiled": f"differs by {found['compiled_differs']:.1e} of the largest",
        _ONE_GRADIENT: "no gradient of each worker's own",
    }
    for way in WAYS:
        speed = f"{1 / medians[way]:.2f}"
        table.add_row(
            f"torch alone, {way}", "", speed, f"{medians[way] / ours:.2f}", notes.get(way, "")
        )
    table.add_row("", "", "", "", f"others took {found['others']:.0%} of the CPU")
