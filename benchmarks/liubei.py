"""LiuBei's accuracy as more and more of its workers lie, as the authors' last figure shows it.

El Mhamdi, Guerraoui, Guirguis: "Fast Machine Learning with Byzantine Workers and Servers", 2019,
as shown in their lecture on robust distributed learning, EPFL.

20 workers, 4 servers of which 1 lies; f_w workers are declared and lie. They saw
severe degradation from 20 % on, and 40 points lost at 8 of 20. From simulation: the same
numbers in every run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import mean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.applications import PLAIN, QUICK, RESULTS, Kept, simulated
from benchmarks.applications_table import accuracies, spread
from garfield.apps.settings import Settings
from garfield.core.errors import MissingDependency
from garfield.report.drawing import matplotlib

QUESTION = "How does LiuBei's accuracy fall as more workers lie?"
LIARS = range(9)
ATTACKS = ("reverse", "little-is-enough")
BASE = Settings().updated(
    app="liubei", gar="multi-krum", model="mnist_cnn", data="fashion-small", workers=20, servers=4,
    byzantine_servers=1, server_attack="reverse", gather_every=5, steps=150, evaluate_every=50,
)  # fmt: skip
Curve = Mapping[int, list[dict[str, Any]]]
"""What every seed found, by how many workers lie."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--liubei-seeds", type=int, default=5, help="runs of each cell (5)")
    group.add_argument("--liubei-again", action="store_true", help="forget what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print accuracy over f_w for each attack, draw it; all numbers are returned."""
    kept = Kept(RESULTS / "liubei", options.liubei_again, console)
    base = BASE.updated(**QUICK, steps=50) if options.quick else BASE
    base = base.updated(learning_rate=PLAIN[base.learning.model])
    curves: dict[str, dict[int, Any]] = {attack: {} for attack in ATTACKS}
    for attack, curve in curves.items():
        for liars in LIARS:
            settings = base.updated(byzantine_workers=liars, worker_attack=attack)
            curve[liars] = [
                kept.cell(f"{liars}-of-20-{seed}", attack, settings.updated(seed=seed), simulated)
                for seed in range(options.liubei_seeds)
            ]
    console.print(_table(curves))
    try:
        console.print(f"Picture: {_draw(curves)}")
    except MissingDependency as missing:
        console.print(str(missing))
    return {"curves": curves}


def _table(curves: Mapping[str, Curve]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    made.add_column("lying of 20", justify="right")
    for attack in curves:
        made.add_column(f"{attack}, %", justify="right")
        made.add_column("honest models refused, %", justify="right")
        made.add_column("lying server's, %", justify="right")
    for liars in LIARS:
        cells: list[str] = []
        for curve in curves.values():
            found, lying = [100 * each for each in accuracies(curve[liars])], BASE.server_names[-1]
            counts = [
                (name, count) for cell in curve[liars] for name, count in cell["filters"].items()
            ]
            honest = [count for name, count in counts if name != lying]
            cells += [f"{mean(found):.1f} ± {spread(found):.1f}", _refused(honest)]
            cells.append(_refused([count for name, count in counts if name == lying]))
        made.add_row(str(liars), *cells)
    return made


def _refused(counts: list[list[int]]) -> str:
    judged = sum(of for of, _ in counts)
    return f"{100 * sum(refused for _, refused in counts) / judged:.1f}" if judged else "–"


def _draw(curves: Mapping[str, Curve]) -> str:
    figure = matplotlib().figure.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for (attack, curve), colour in zip(curves.items(), ("#c9302c", "#2563a8"), strict=True):
        found = [[100 * each for each in accuracies(curve[liars])] for liars in LIARS]
        axes.errorbar(
            list(LIARS), [mean(each) for each in found], [spread(each) for each in found],
            marker="o", color=colour, capsize=3, label=attack,
        )  # fmt: skip
    axes.set_xlabel("lying workers, of 20; one of 4 servers lies too")
    axes.set_ylabel("right on images never seen, %")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False)
    path = RESULTS / "liubei.png"
    figure.savefig(path, dpi=130)
    return str(path)
