"""Do rules of this library keep a federated GAN alive when devices lie?

80 simulated devices of iid Fashion-MNIST, C = 0.25 (20 a round), E = 10 iterations of 50, 60 rounds
of a quarter-width LSGAN, 4 devices that lie: `little-is-enough` and `reverse` about what they
learned, `large` and `rare` about what they have. Each with the weighted mean (kl weights), and with
a rule that bears 4 of 20. Told are FID (small CNN) and modes at the end, beside an honest training.
What came of each is kept in benchmarks/raw/fedgan_byzantine.jsonl, and one that was broken off
goes on from results/fedgan_byzantine; at 0.06 s an iteration, one takes twelve minutes, and all of
them two hours.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from benchmarks.fedgan_runs import held
from garfield.report.plain_tables import plain_table

QUESTION = "Do robust rules keep a federated GAN alive when devices lie?"
LIES: dict[str, dict[str, Any]] = {
    "nobody lies": {},
    "little-is-enough": {"attack": "little-is-enough"},
    "reverse": {"attack": "reverse"},
    "counts: large": {"metadata_attack": "large"},
    "counts: rare": {"metadata_attack": "rare"},
}


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--lied-data", default="fashion", help="which data set")
    group.add_argument("--lied-data-dir", help="where it lies")
    group.add_argument("--lied-rules", nargs="+", default=["nnm+trimmed-mean"], help="rules")
    group.add_argument("--lied-rounds", type=int, default=60, help="of each training")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line for each lie, with the mean and with each rule."""
    table = plain_table("lie", "joined by", "FID", "modes", "KL of classes", right=3)
    found = []
    for lie, given in LIES.items():
        for rule in (None, *options.lied_rules):
            settings: dict[str, Any] = {
                "gan": "lsgan(width=0.25)", "data": options.lied_data,
                "data_dir": options.lied_data_dir, "devices": 80, "fraction": 0.25,
                "partition": "iid", "local_steps": 10, "rounds": options.lied_rounds,
                "train_classifier": False, **given,
            }  # fmt: skip
            settings |= {"gar": rule, "f": 4} if rule else {"liars": 4} if given else {}
            if options.quick:
                settings |= {"data": "fashion-small", "rounds": 2, "local_steps": 1}
                settings |= {"judged_images": 200}
            name = "".join(c if c.isalnum() else "-" for c in f"{lie}-{rule or 'mean'}")
            kept = held("fedgan_byzantine", name, settings, console, quick=options.quick)
            line = {"lie": lie, "joined": rule or "weighted mean", "diverged": kept.diverged}
            line |= {key: kept.summary[key] for key in ("fid", "modes", "class_kl")}
            found.append(line)
            numbers = (
                ["diverged", "–", "–"]
                if kept.diverged or line["fid"] is None
                else [f"{line['fid']:.1f}", str(line["modes"]), f"{line['class_kl']:.3f}"]
            )
            table.add_row(lie, str(line["joined"]), *numbers)
    console.print(table)
    return {"lines": found}
