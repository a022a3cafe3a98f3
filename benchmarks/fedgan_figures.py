"""Images of chapter 6 beside the sampling of devices: what is learned, at what price, by whom.

    learns    the full LSGAN on MNIST and Fashion-MNIST: FID (small CNN) below a third of the
              smaller of noise's and one class's, 9 modes at least
    iid       Figures 6.5, 6.6: 20 devices of iid MNIST, sampling and weights on and off; what
              centralized training and MD-GAN make of them is `fedgan_baselines`
    apart     Figure 6.12: the generator learns with the discriminator, or once in a round
    weak      Figure 6.17: 10 to 90 % of devices with half the batch and half the iterations
    colour    DCGAN on tiny-imagenet-10, 64×64, sampling and weights on and off

All are simulated, of quarter-width LSGANs where nothing else is said, 100 rounds of 30 iterations
of 50 on 2 devices each. What came of each is kept in benchmarks/raw/fedgan_figures.jsonl, and one
that was broken off goes on from results/fedgan_figures. `fedgan_noniid` and `fedgan_byzantine` ask
what skew and lies do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.fedgan_baselines import scale
from benchmarks.fedgan_runs import LABELS, KeptRun, averaged, curve, held
from garfield.core.errors import ConfigError
from garfield.fedgan.demo import CONFIGURATIONS
from garfield.fedgan.judging import judge_for
from garfield.report.plain_tables import plain_table

QUESTION = "What do federated GANs learn, iid, apart, with weak devices, in colour?"
_QUARTER = {"gan": "lsgan(width=0.25)"}
_SKEWED = {"data": "fashion", "devices": 80, "fraction": 0.025, "missing_classes": "allow"}
LEAST_MODES = 9
Variants = Mapping[str, Mapping[str, Any]]


def _groups(folder: str | None) -> dict[str, tuple[int, Variants]]:
    """Of each group, seeds and what its trainings are given beyond the usual."""
    iid = {"data": "mnist", "devices": 20, "fraction": 0.1, "partition": "iid"} | _QUARTER
    weak = {f"{share:.0%} weak": share for share in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)}
    colour = {
        "gan": "dcgan(ngf=16)", "data": f"folder:{folder}", "devices": 80, "fraction": 0.025,
        "max_class": 5, "max_samples": 100, "missing_classes": "allow",
    }  # fmt: skip
    return {
        "learns": (
            1,
            {name: iid | {"gan": "lsgan", "data": name} for name in ("mnist", "fashion")},
        ),
        "iid": (1, {name: iid | choice for name, choice in CONFIGURATIONS.items()}),
        "apart": (
            1,
            {f"once in {e}": _SKEWED | _QUARTER | {"generator_every": e} for e in (1, 5, 30)},
        ),
        "weak": (
            3,
            {
                name: _SKEWED | _QUARTER | {"weak_devices": share, "rounds": 50}
                for name, share in weak.items()
            },
        ),
        "colour": (1, {name: colour | choice for name, choice in CONFIGURATIONS.items()}),
    }


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--groups", nargs="+", help="which; if not given, all but colour")
    group.add_argument("--figures-data-dir", help="where mnist and fashion lie")
    group.add_argument("--tiny-imagenet", help="the folder of tiny-imagenet-10, for colour")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table for each group."""
    groups = _groups(options.tiny_imagenet)
    chosen = options.groups or [name for name in groups if name != "colour"]
    if unknown := set(chosen) - set(groups):
        raise ConfigError(
            f"There is no group {', '.join(unknown)}. There are: {', '.join(groups)}."
        )
    if "colour" in chosen and not options.tiny_imagenet:
        raise ConfigError(
            "colour needs --tiny-imagenet DIR, a folder with a folder for each class."
        )
    ends: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name in chosen:
        seeds, variants = groups[name]
        runs = {
            variant: [
                held("fedgan_figures", f"{name}-{_plain(variant)}-{seed}", settings, console,
                     quick=options.quick)
                for seed in range(1 if options.quick else seeds)
                for settings in [_settings(given, seed, options)]
            ]
            for variant, given in variants.items()
        }  # fmt: skip
        console.print(name)
        console.print(_table(runs))
        for variant, each in runs.items():
            about = {"group": name, "training": variant, "label": LABELS.get(variant, variant)}
            ends.append({**about, **averaged(each)})
            curves += [{**about, **at} for at in curve(each)]
    found: dict[str, Any] = {"ends": ends, "curve": curves}
    if "learns" in chosen and not options.quick:
        learned = {each["training"]: each for each in ends if each["group"] == "learns"}
        found["scale"] = _told_scale(learned, options.figures_data_dir, console)
    return found


def _settings(given: Mapping[str, Any], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"rounds": 100, "train_classifier": False, **given, "seed": seed}
    settings["data_dir"] = options.figures_data_dir
    if options.quick:
        settings |= {"data": "fashion-small", "gan": "lsgan(width=0.0625)", "rounds": 4}
        settings |= {"local_steps": 5, "judged_images": 200, "evaluate_every": 2}
    return settings


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)


def _table(runs: Mapping[str, Sequence[KeptRun]]) -> Table:
    table = plain_table("", "best FID", "at the end", "modes", "seconds", "MB a device", right=5)
    for variant, each in runs.items():
        of = {
            key: [run.summary[key] for run in each]
            for key in ("best_fid", "fid", "modes", "time_s", "bytes_per_device")
        }
        table.add_row(
            variant, _mean(of["best_fid"]), _mean(of["fid"]), _mean(of["modes"]),
            _mean(of["time_s"], digits=0), _mean(b / 1e6 for b in of["bytes_per_device"]),
        )  # fmt: skip
    return table


def _told_scale(
    learned: Mapping[str, Any], data_dir: str | None, console: Console
) -> dict[str, dict[str, float]]:
    """What FIDs are to be held against, and whether enough was learned."""
    found = {}
    for data, line in learned.items():
        found[data] = worth = scale(judge_for(data, data_dir=data_dir), quick=False)
        least, fid, modes = min(worth.values()), line["best_fid"], line["modes"]
        met = fid < least / 3 and modes >= LEAST_MODES
        console.print(
            f"{data}: noise {worth['noise']:.0f}, nearest single class {worth['one_class']:.0f}; "
            f"learned {fid:.1f}, which is {fid / least:.2f} of the smaller, {modes:.0f} modes: "
            f"target of a third and {LEAST_MODES} modes {'met' if met else 'missed'}."
        )
    return found


def _mean(values: Iterable[float], digits: int = 1) -> str:
    numbers = list(values)
    spread = f" ± {stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{fmean(numbers):.{digits}f}{spread}"
