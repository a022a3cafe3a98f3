"""What balanced sampling and KL weights do to the images, on skewed data: Figures 6.7, 6.8, 6.10.

80 simulated devices, 2 a round, 30 iterations of 50, a quarter-width LSGAN, 100 rounds, images
judged every 10: MNIST and Fashion-MNIST, at most 5 or 10 classes a device, sampling and weights on
and off, three seeds of each. Told are the best FID (small CNN) of each with its spread, how many
classes are covered at the end, and the rounds until the best of FL-vanilla (neither) was reached,
as a ratio too: a round is the same work in each, and its seconds are those of the machine it ran
on. What came of each is kept in benchmarks/raw/fedgan_noniid.jsonl, and one that was broken off
goes on from results/fedgan_noniid; at 0.06 s an iteration, one takes six minutes, and all of them
five hours.
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from benchmarks.fedgan_runs import KeptRun, held
from garfield.fedgan.demo import CONFIGURATIONS
from garfield.report.plain_tables import plain_table

QUESTION = "What do balanced sampling and KL weights do to images learned from skewed data?"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--noniid-data", nargs="+", default=["mnist", "fashion"], help="data sets")
    group.add_argument("--fedgan-data-dir", help="where they lie")
    group.add_argument("--max-class", type=int, nargs="+", default=[5, 10], help="classes a device")
    group.add_argument("--fedgan-rounds", type=int, default=100, help="of each training")
    group.add_argument("--fedgan-seeds", type=int, default=3, help="trainings of each kind")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table for each data set and number of classes."""
    found: dict[str, Any] = {}
    data = ["fashion-small"] if options.quick else options.noniid_data
    for name in data:
        for max_class in options.max_class:
            console.print(f"{name}, at most {max_class} classes a device")
            found[f"{name}-{max_class}"] = _cell(options, name, max_class, console)
    return found


def _cell(
    options: argparse.Namespace, data: str, max_class: int, console: Console
) -> dict[str, Any]:
    runs: dict[str, list[KeptRun]] = {name: [] for name in CONFIGURATIONS}
    for seed in range(1 if options.quick else options.fedgan_seeds):
        for name, choice in CONFIGURATIONS.items():
            settings: dict[str, Any] = {
                "gan": "lsgan(width=0.25)", "data": data, "data_dir": options.fedgan_data_dir,
                "devices": 80, "fraction": 0.025, "max_class": max_class, "max_samples": 3000,
                "missing_classes": "allow", "rounds": options.fedgan_rounds, "seed": seed,
                "train_classifier": False, **choice,
            }  # fmt: skip
            if options.quick:
                settings |= {"rounds": 2, "local_steps": 2, "judged_images": 200}
            label = f"{data}-{max_class}-{name}-{seed}"
            runs[name].append(held("fedgan_noniid", label, settings, console, quick=options.quick))
    table = plain_table("", "best FID", "modes", "rounds to FL-vanilla's best", "gain", right=4)
    lines = {}
    for name, each in runs.items():
        best = [run.summary["best_fid"] for run in each]
        modes = [run.summary["modes"] for run in each]
        vanilla = [run.summary["best_fid"] for run in runs["neither"]]
        rounds = [run.rounds_to(fid) for run, fid in zip(each, vanilla, strict=True)]
        whole = [run.rounds_to(fid) for run, fid in zip(runs["neither"], vanilla, strict=True)]
        gains = [b / a for a, b in zip(rounds, whole, strict=True) if a and b]
        reached = [took for took in rounds if took is not None]
        table.add_row(
            name, f"{fmean(best):.1f} ± {_spread(best):.1f}", f"{fmean(modes):.1f}",
            f"{fmean(reached):.0f} ({len(reached)} of {len(rounds)})" if reached else "never",
            f"{fmean(gains):.2f} ± {_spread(gains):.2f}" if gains else "–",
        )  # fmt: skip
        lines[name] = {
            "best_fid": best,
            "modes": modes,
            "rounds_to_vanilla": rounds,
            "seconds": [run.summary["time_s"] for run in each],
            "gains": gains,
        }
    console.print(table)
    return lines


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
