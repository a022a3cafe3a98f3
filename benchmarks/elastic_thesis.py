"""The simulated figures of chapter 4 of the thesis, each claim marked held or failed here.

    4.1   15 jobs, Poisson, Static: how much of the cluster is used
    4.3   one job of ImageNet: workers, throughput and use over time
    4.4   the same for different numbers of starting workers
    4.5   100 jobs, Poisson, stopped after 7 hours
    4.6   15 jobs, Poisson: completed and running jobs
    4.7   10 to 60 jobs at once
    4.8   20 jobs, two minutes apart

Ten seeds, all policies on the same jobs of each; intervals hold the mean with 95 %. A ratio that
the thesis claims has *held* if ours, with its interval, reaches it; any other number if ours is
within a quarter of it; a statement without a number if it is true of our means. Everything comes
from fitted profiles on a virtual clock: no claim here is one about real GPUs.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from benchmarks.elastic_claims import claims_table
from benchmarks.elastic_figures import FIGURES

QUESTION = "Which claims about elastic training hold in simulation (thesis, chapter 4)?"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--figure", choices=sorted(FIGURES), nargs="+", default=sorted(FIGURES))
    group.add_argument("--seeds", type=int, default=10, help="workloads that are drawn")
    group.add_argument("--rescale-s", type=float, default=30.0, help="what a rescaling costs")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Every figure that is asked for."""
    options.seeds = 2 if options.quick else options.seeds
    found: dict[str, list[dict[str, Any]]] = {"summary": [], "series": [], "claims": []}
    for name in options.figure:
        console.print(f"[bold]Figure {name}[/]")
        figure = FIGURES[name](options)
        for table in figure.tables:
            console.print(table)
        console.print(claims_table(figure.claims))
        found["summary"] += [{"figure": name, **line} for line in figure.summary]
        found["series"] += [{"figure": name, **line} for line in figure.series]
        found["claims"] += [{"figure": name, **claim.line()} for claim in figure.claims]
    held = sum(line["held"] for line in found["claims"])
    console.print(f"{held} of {len(found['claims'])} claims held here.")
    return found
