"""Gradients and updates a second, system by system, as more workers join.

`aggregathor` asks the question of AggregaThor's Figure 5 (Damaskinos et al., SysML 2019) and of its
poster: one trusted server, several rules. `liubei` asks that of LiuBei's throughput (El Mhamdi et
al., PODC 2020): several servers, one of which is declared. Nodes are processes of this host, nobody
lies; every setting has its turn in every round, in another order each time, and its fastest counts.
DRACO's workers compute each gradient r ≥ 2 f + 1 times, and its rate counts each of them once.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.throughput import Contender
from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.report.plain_tables import plain_table

QUESTION = "How many gradients a second does each system take, with more and more workers?"
WORKERS, WORKERS_QUICK = (6, 12, 18), (7,)
WARM_UP = 2
SYSTEMS: dict[str, dict[str, dict[str, Any]]] = {
    "aggregathor": {
        "vanilla": {"app": "vanilla"},
        "average": {"app": "aggregathor", "gar": "average"},
        "median": {"app": "aggregathor", "gar": "median", "f_workers": 1},
        "multi-krum, f = 1": {"app": "aggregathor", "gar": "multi-krum", "f_workers": 1},
        "multi-krum, f = 4": {"app": "aggregathor", "gar": "multi-krum", "f_workers": 4},
        "multi-krum, f = 7": {"app": "aggregathor", "gar": "multi-krum", "f_workers": 7},
        "bulyan, f = 1": {"app": "aggregathor", "gar": "bulyan", "f_workers": 1},
        "bulyan, f = 3": {"app": "aggregathor", "gar": "bulyan", "f_workers": 3},
        "draco, f = 1": {"app": "draco", "f_workers": 1},
        "draco, f = 4": {"app": "draco", "f_workers": 4},
    },
    "liubei": {
        "vanilla": {"app": "vanilla"},
        "liubei, 4 servers": {
            "app": "liubei", "gar": "multi-krum", "servers": 4, "f_servers": 1, "f_workers": 4,
            "gather_every": 5, "momentum": 0.0,
        },
        "guanyu, 6 servers": {
            "app": "guanyu", "gar": "multi-krum", "servers": 6, "f_servers": 1, "f_workers": 4
        },
    },
}  # fmt: skip
"""GuanYu has a server more than the source gave it: 5 of which 1 lies break its n ≥ 3 f + 3."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--systems", choices=list(SYSTEMS), default="aggregathor")
    group.add_argument("--gradients-workers", type=int, nargs="+", help="(6 12 18)")
    group.add_argument("--gradients-steps", type=int, default=12, help="of each run (12)")
    group.add_argument("--gradients-rounds", type=int, default=1, help="(1)")


def run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print a table; all rates are returned."""
    steps = WARM_UP + (4 if options.quick else options.gradients_steps)
    counts = options.gradients_workers or (WORKERS_QUICK if options.quick else WORKERS)
    contenders = dict(_contenders(SYSTEMS[options.systems], counts, steps))
    turns, order = list(contenders.values()), random.Random(0)
    for _ in range(1 if options.quick else options.gradients_rounds):
        order.shuffle(turns)
        for number, turn in enumerate(turns, start=1):
            with console.status(f"{number} of {len(turns)}: {turn.settings.rule_name}"):
                turn.run(WARM_UP)
    table = plain_table("system", *(f"{n} workers" for n in counts), right=len(counts))
    found = [
        {"system": name, "workers": n, "gradients_per_s": n / each.step_s,
         "updates_per_s": 1 / each.step_s, "step_s": each.step_s}
        for (name, n), each in contenders.items()
    ]  # fmt: skip
    rates = {(each["system"], each["workers"]): each["gradients_per_s"] for each in found}
    for name in SYSTEMS[options.systems]:
        shown = [rates.get((name, n)) for n in counts]
        table.add_row(name, *("–" if rate is None else f"{rate:.0f}" for rate in shown))
    console.print(table)
    return found


def _contenders(
    systems: Mapping[str, Mapping[str, Any]], counts: Sequence[int], steps: int
) -> Iterator[tuple[tuple[str, int], Contender]]:
    """Every system with every number of workers that it can have."""
    for name, told in systems.items():
        for n in counts:
            try:
                settings = Settings.of(
                    model="mnist_cnn", data="fashion-small", workers=n, steps=steps,
                    learning_rate=0.01, evaluate_every=0, test_images=100, **told,
                ).check()  # fmt: skip
            except ConfigError:  # too few for this f
                continue
            yield (name, n), Contender(settings.app, "memory", settings)
