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
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.kept_runs import RESULTS
from garfield.core.config import made
from garfield.core.errors import DivergedError
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.training import train
from garfield.report.fedgan_summary import FedganHistory, fedgan_summary
from garfield.report.machine import processor
from garfield.runs.run_directory import RunDirectory

RAW = Path(__file__).parent / "raw"
_OF_A_JUDGEMENT = ("round", "fid", "modes", "class_kl")


@dataclass(frozen=True)
class KeptRun:
    """What came of a training."""

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
    return KeptRun(line["summary"], line["judged"], line["kl_seen"])


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
