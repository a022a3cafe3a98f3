"""What balanced sampling and KL weights do to the images, on skewed data: Figures 6.7, 6.8, 6.10.

80 simulated devices, 2 a round, 30 iterations of 50, a quarter-width LSGAN, 100 rounds, images
judged every 10: MNIST and Fashion-MNIST, at most 5 or 10 classes a device, sampling and weights on
and off, three seeds of each. Told are the best FID (small CNN) of each with its spread, how many
classes are covered at the end, and the rounds until the best of FL-vanilla (neither) was reached,
as a ratio too: a round is the same work in each, and its seconds are those of the machine it ran
on. Figure 6.9 is the same of colour images: `--noniid-data cifar10`.

What came of each is kept in benchmarks/raw/fedgan_noniid.jsonl, and one that was broken off goes on
from results/fedgan_noniid; at 0.06 s an iteration, one takes six minutes, and all of them five
hours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.fedgan_runs import LABELS, KeptRun, averaged, curve, held, mean, spread
from garfield.fedgan.demo import CONFIGURATIONS
from garfield.report.plain_tables import plain_table

QUESTION = "What do balanced sampling and KL weights do to images learned from skewed data?"
BASELINE = "neither"
"""FL-vanilla, which the others are held against."""
OTHERS = [name for name in CONFIGURATIONS if name != BASELINE]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--noniid-data", nargs="+", default=["mnist", "fashion"], help="data sets")
    group.add_argument("--fedgan-data-dir", help="where they lie")
    group.add_argument("--max-class", type=int, nargs="+", default=[5, 10], help="classes a device")
    group.add_argument(
        "--configurations", nargs="+", choices=OTHERS, default=OTHERS, help="beside FL-vanilla"
    )  # fmt: skip
    group.add_argument("--fedgan-rounds", type=int, default=100, help="of each training")
    group.add_argument("--fedgan-seeds", type=int, default=3, help="trainings of each kind")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table for each data set and number of classes."""
    ends: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    data = ["fashion-small"] if options.quick else options.noniid_data
    for name in data:
        for max_class in options.max_class:
            console.print(f"{name}, at most {max_class} classes a device")
            runs = _trained(options, name, max_class, console)
            lines = _compared(runs)
            console.print(_table(runs, lines))
            for configuration, each in runs.items():
                about = {
                    "data": name, "max_class": max_class, "training": configuration,
                    "skew": f"at most {max_class} classes a device", "label": LABELS[configuration],
                }  # fmt: skip
                ends.append({**about, **averaged(each), **lines[configuration]})
                curves += [{**about, **at} for at in curve(each)]
    return {"ends": ends, "curve": curves}


def _trained(
    options: argparse.Namespace, data: str, max_class: int, console: Console
) -> dict[str, list[KeptRun]]:
    """All trainings of a data set and number of classes, a list of seeds for each configuration."""
    wanted = {BASELINE, *options.configurations}
    chosen = {name: choice for name, choice in CONFIGURATIONS.items() if name in wanted}
    runs: dict[str, list[KeptRun]] = {name: [] for name in chosen}
    for seed in range(1 if options.quick else options.fedgan_seeds):
        for name, choice in chosen.items():
            settings: dict[str, Any] = {
                "gan": "lsgan(width=0.25)", "data": data, "data_dir": options.fedgan_data_dir,
                "devices": 80, "fraction": 0.025, "max_class": max_class, "max_samples": 3000,
                "missing_classes": "allow", "rounds": options.fedgan_rounds, "seed": seed,
                "train_classifier": False, **choice,
            }  # fmt: skip
            if options.quick:
                settings |= {"rounds": 4, "local_steps": 5, "judged_images": 200}
                settings |= {"evaluate_every": 1}
            label = f"{data}-{max_class}-{name}-{seed}"
            runs[name].append(held("fedgan_noniid", label, settings, console, quick=options.quick))
    return runs


def _compared(runs: Mapping[str, Sequence[KeptRun]]) -> dict[str, dict[str, Any]]:
    """Of each configuration how soon it was as good as FL-vanilla with its seed ever was."""
    best = [run.summary["best_fid"] for run in runs[BASELINE]]
    whole = [run.summary["best_fid_round"] for run in runs[BASELINE]]
    lines = {}
    for name, each in runs.items():
        rounds = [run.rounds_to(fid) for run, fid in zip(each, best, strict=True)]
        reached = [took for took in rounds if took is not None]
        gains = [b / a for a, b in zip(rounds, whole, strict=True) if a and b]
        lines[name] = {
            "rounds_to_vanilla": mean(reached), "reached": len(reached), "gain": mean(gains),
            "gain_deviation": spread(gains),
        }  # fmt: skip
    return lines


def _table(runs: Mapping[str, Sequence[KeptRun]], lines: Mapping[str, Mapping[str, Any]]) -> Table:
    table = plain_table("", "best FID", "modes", "rounds to FL-vanilla's best", "gain", right=4)
    for name, each in runs.items():
        best = [run.summary["best_fid"] for run in each]
        line, modes = lines[name], fmean(run.summary["modes"] for run in each)
        rounds, gain = line["rounds_to_vanilla"], line["gain"]
        table.add_row(
            name, f"{fmean(best):.1f} ± {spread(best):.1f}", f"{modes:.1f}",
            f"{rounds:.0f} ({line['reached']} of {len(each)})" if rounds else "never",
            f"{gain:.2f} ± {line['gain_deviation']:.2f}" if gain else "–",
        )  # fmt: skip
    return table
