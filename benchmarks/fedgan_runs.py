"""Trainings of federated GANs that are kept: each has its directory, and goes on where it was.

What came of one that has ended is a line of benchmarks/raw/BENCHMARK.jsonl, with the processor, and
is not trained again on any machine: together they take hours, and more than one day.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.kept_runs import RESULTS
from garfield.core.config import made
from garfield.core.errors import DivergedError
from garfield.fedgan.demo import CONFIGURATIONS
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.training import train
from garfield.report.fedgan_summary import FedganHistory, fedgan_summary
from garfield.report.machine import processor
from garfield.runs.run_directory import RunDirectory

RAW = Path(__file__).parent / "raw"
_OF_A_JUDGEMENT = ("round", "fid", "modes", "class_kl")
_OF_A_SUMMARY = (
    "best_fid", "best_fid_round", "fid", "modes", "time_s", "bytes_per_device", "declared_epochs",
)  # fmt: skip
LABELS = {
    name: f"FeGAN, s={choice['sampling'] == 'balanced':d}, w={choice['weighting'] == 'kl':d}"
    for name, choice in CONFIGURATIONS.items()
}
"""Sampling and weights on and off, as the thesis writes them in its figures."""


@dataclass(frozen=True)
class KeptRun:
    """What came of a training."""

    settings: Mapping[str, Any]
    """What it was given."""
    summary: Mapping[str, Any]
    judged: Sequence[Mapping[str, Any]]
    """Of each evaluation the round, what the images were worth, and seconds trained until then."""
    kl_seen: Sequence[float]
    """Of each round, how far the classes that were seen are from those that there are."""

    @property
    def diverged(self) -> bool:
        return bool(self.summary["diverged"])

    def rounds_to(self, fid: float) -> int | None:
        """Rounds until images were first judged that good; None if never."""
        return next((each["round"] for each in self.judged if each["fid"] <= fid), None)


def held(
    benchmark: str, name: str, given: Mapping[str, Any], console: Console, *, quick: bool = False
) -> KeptRun:
    """The training with these settings: what is kept of it, or it is begun or resumed.

    A quick one is kept with what it has trained, and not where results are published.
    """
    what = {key: value for key, value in given.items() if key != "data_dir"}
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    raw = (RESULTS / f"{benchmark}.quick.jsonl") if quick else RAW / f"{benchmark}.jsonl"
    line = next((each for each in _lines(raw) if each["digest"] == digest), None)
    if line is None:
        console.print(f"  {name}", style="dim")
        found = _trained(made(FedganSettings, given), RESULTS / benchmark / f"{name}-{digest}")
        line = {"name": name, "digest": digest, "cpu": processor(), "settings": what, **found}
        raw.parent.mkdir(parents=True, exist_ok=True)
        with raw.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return KeptRun(line["settings"], line["summary"], line["judged"], line["kl_seen"])


def averaged(runs: Sequence[KeptRun]) -> dict[str, Any]:
    """Of trainings that differ by their seed, the mean and deviation of what each came to."""
    found: dict[str, Any] = {"seeds": len(runs)}
    for name in _OF_A_SUMMARY:
        values = [run.summary[name] for run in runs if run.summary[name] is not None]
        found[name], found[f"{name}_deviation"] = mean(values), spread(values)
    return found


def curve(runs: Sequence[KeptRun]) -> list[dict[str, Any]]:
    """Their mean at each evaluation that all of them came to.

    `iterations` are those of a device that is always asked, one after the other, and `images` what
    all devices together trained on.
    """
    first = runs[0]
    steps = made(FedganSettings, first.settings).training.local_steps
    of_a_round = first.summary["samples"] / max(1, first.summary["rounds"])
    by_round = [{each["round"]: each["fid"] for each in run.judged} for run in runs]
    found = []
    for at in sorted(set.intersection(*map(set, by_round))):
        fids = [of_run[at] for of_run in by_round]
        found.append(
            {"round": at, "iterations": at * steps, "images": at * of_a_round,
             "fid": mean(fids), "fid_deviation": spread(fids)}
        )  # fmt: skip
    return found


def mean(values: Sequence[float]) -> float | None:
    """None of no values, as of trainings that diverged before they were judged."""
    return fmean(values) if values else None


def spread(values: Sequence[float]) -> float:
    """Their standard deviation; 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _trained(settings: FedganSettings, folder: Path) -> dict[str, Any]:
    directory = RunDirectory(folder)
    begun, diverged = any(directory.checkpoints.glob("round-*.safetensors")), False
    with alone():
        try:
            train(settings, directory, lambda _: None, resume=begun)
        except DivergedError:
            diverged = True
    history = FedganHistory.of(directory.events())
    judged = [
        {**{key: each.get(key) for key in _OF_A_JUDGEMENT}, "time_s": history.time_s(each["round"])}
        for each in history.judged
    ]
    return {
        "summary": fedgan_summary(directory.events()) | {"diverged": diverged},
        "judged": judged,
        "kl_seen": [each["kl_seen"] for each in history.rounds],
    }
