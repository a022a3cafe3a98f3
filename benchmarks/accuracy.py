"""Accuracy that robustness costs while nobody lies.

Eleven workers, all honest, though the rule is told that f of them may lie; the
same seed, data, batches and number of steps for all. What a setting loses is the
accuracy of vanilla, which averages, minus its own, in points, on the whole test
set. All runs are simulated. A run that has ended is kept in results/accuracy/ and
not run again (--fresh does), so an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.kept_runs import accuracy_of
from garfield.apps.settings import Settings
from garfield.gars import GARS

QUESTION = "How much accuracy does robustness cost while nobody lies?"
MODELS = {"fashion": "mnist_cnn", "mnist": "mnist_cnn", "cifar10": "cifarnet"}
STEPS = {"fashion": 200, "mnist": 200, "cifar10": 100}
N_W, N_PS = 11, 3
TARGET = 1.0  # points that the best robust setting may lose
FEW = ("median", "multi-krum", "trimmed-mean")
APPS = ("ssmw", "msmw", "decentralized")


@dataclass(frozen=True)
class Setting:
    """What a line of the table is about: an application, a rule, and what it is told."""

    app: str
    rule: str
    f: int

    def settings(self, common: Settings) -> Settings:
        servers = N_PS if self.app in ("msmw", "crash-tolerant") else 1
        return common.updated(
            app=self.app, gar=self.rule, f_workers=self.f, servers=servers,
            f_servers=1 if servers > 1 else 0,
        )  # fmt: skip


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--accuracy-data", nargs="+", choices=list(MODELS), default=["fashion"], help="(fashion)"
    )
    group.add_argument("--accuracy-data-dir", help="where the data lie, as for garfield train")
    group.add_argument("--accuracy-steps", type=int, help="(200, cifar10: 100)")
    group.add_argument("--accuracy-seeds", type=int, nargs="+", default=[0], help="(0)")
    group.add_argument("--accuracy-f", type=int, nargs="+", help="liars the rule is told of (1 2)")
    group.add_argument("--accuracy-apps", nargs="+", default=list(APPS), help=f"({' '.join(APPS)})")
    group.add_argument("--accuracy-rules", nargs="+", help="(ssmw: all; elsewhere three)")
    group.add_argument("--fresh", action="store_true", help="run again what has been run")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table per data set; all accuracies are returned."""
    found = {}
    for data in options.accuracy_data:
        steps = options.accuracy_steps or (30 if options.quick else STEPS[data])
        common = Settings.of(
            data=data, data_dir=options.accuracy_data_dir, model=MODELS[data], workers=N_W,
            steps=steps, evaluate_every=0, simulate=True,
        )  # fmt: skip
        few = options.quick or data == "cifar10"
        chosen = list(_chosen(options, few))
        base = _mean(Setting("vanilla", "average", 0), common, options, console)
        lines = [(one, _mean(one, common, options, console)) for one in chosen]
        console.print(_table(data, common, options.accuracy_seeds, base, lines))
        found[data] = {
            "steps": steps, "n_w": N_W, "n_ps": N_PS, "batch": common.learning.batch,
            "seeds": options.accuracy_seeds, "vanilla": base,
            "settings": [{**asdict(one), "accuracy": value} for one, value in lines],
        }  # fmt: skip
    return found


def _chosen(options: argparse.Namespace, few: bool) -> Iterator[Setting]:
    every = [name for name in GARS if name != "average"]
    yield Setting("crash-tolerant", "average", 2)
    for app in options.accuracy_apps:
        short = few or app != "ssmw"  # the rule is what differs, and it is the same elsewhere
        for f in options.accuracy_f or ([2] if short else [1, 2]):
            for name in options.accuracy_rules or (FEW if short else every):
                yield Setting(app, name, f)


def _mean(one: Setting, common: Settings, options: argparse.Namespace, console: Console) -> float:
    """Accuracy over the seeds."""
    settings = one.settings(common)
    with console.status(f"{common.samples.data}: {one.app}, {one.rule}, f = {one.f}"):
        cores = len(os.sched_getaffinity(0))
        return statistics.fmean(
            accuracy_of(settings.updated(seed=seed), "accuracy", fresh=options.fresh, threads=cores)
            for seed in options.accuracy_seeds
        )


def _table(
    data: str,
    common: Settings,
    seeds: Sequence[int],
    base: float,
    lines: Sequence[tuple[Setting, float]],
) -> Table:
    """Points lost to vanilla: a line per application and rule, a column per f."""
    title = (
        f"[bold]{data}, {common.learning.model}[/]: {common.steps} steps, {N_W} honest workers, "
        f"batch {common.learning.batch}, {len(seeds)} seed(s)\n"
        f"vanilla: {base:.2%} right; below, points lost to it"
    )
    table = Table("application", "rule", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    told = sorted({one.f for one, _ in lines})
    for f in told:
        table.add_column(f"told f = {f}", justify="right")
    values = {(one.app, one.rule, one.f): value for one, value in lines}
    for app, rule in dict.fromkeys((one.app, one.rule) for one, _ in lines):
        cells = [values.get((app, rule, f)) for f in told]
        table.add_row(app, rule, *(_lost(base, value) for value in cells))
    robust = [(base - value, one) for one, value in lines if one.rule != "average"]
    for app in dict.fromkeys(one.app for _, one in robust):
        lost, best = min(
            ((lost, one) for lost, one in robust if one.app == app), key=lambda pair: pair[0]
        )
        mark = "[green]met" if 100 * lost <= TARGET else "[bold red]missed"
        caption = f"{app}: best robust {best.rule}, f = {best.f}, {100 * lost:.2f} lost; {mark}[/]"
        table.caption = f"{table.caption}\n{caption}" if table.caption else caption
    table.caption_justify = "left"
    return table


def _lost(base: float, value: float | None) -> str:
    return "–" if value is None else f"{100 * (base - value):.2f}"
