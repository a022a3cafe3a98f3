"""Trainings of federated GANs that are kept: each has its directory, and goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.kept_runs import RESULTS
from garfield.core.config import made
from garfield.core.errors import DivergedError
from garfield.core.files import write_json
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.training import train
from garfield.report.fedgan_summary import FedganHistory, fedgan_summary
from garfield.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class KeptRun:
    """What came of a training."""

    history: FedganHistory
    summary: Mapping[str, Any]
    diverged: bool

    def time_to(self, fid: float) -> float | None:
        """Seconds of training until images were first judged that good; None if never."""
        over = next((each["round"] for each in self.history.judged if each["fid"] <= fid), None)
        return None if over is None else self.history.time_s(over)


def held(folder: str, name: str, given: Mapping[str, Any], console: Console) -> KeptRun:
    """The training with these settings: what is kept of it, or it is begun or resumed."""
    what = {key: value for key, value in given.items() if key != "data_dir"}
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    directory = RunDirectory(RESULTS / folder / f"{name}-{digest}")
    settings = made(FedganSettings, given)
    if not directory.summary.is_file():
        console.print(f"  {name}", style="dim")
        begun = any(directory.checkpoints.glob("round-*.safetensors"))
        diverged = False
        with alone():
            try:
                train(settings, directory, lambda _: None, resume=begun)
            except DivergedError:
                diverged = True
        write_json(directory.summary, fedgan_summary(directory.events()) | {"diverged": diverged})
    summary = json.loads(directory.summary.read_text())
    return KeptRun(FedganHistory.of(directory.events()), summary, summary["diverged"])
