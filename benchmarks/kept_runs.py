"""Simulated trainings whose accuracies are kept, so that a long benchmark goes on where it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from garfield.apps.settings import Settings
from garfield.core.files import write_json
from garfield.launch.simulate import simulate

RESULTS = Path(__file__).parents[1] / "results"


def accuracy_of(settings: Settings, kept: str, *, fresh: bool = False, threads: int = 1) -> float:
    """The accuracy that a simulated run ends with; 0 if its model diverged.

    It is kept in results/`kept`, and not run again unless it must be `fresh`.
    """
    usual = Settings().values()
    what = {k: v for k, v in settings.values().items() if k != "data_dir" and v != usual.get(k)}
    told = {**what, "gar": settings.aggregation.gar}  # the default may become another
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    name = f"{settings.samples.data}-{settings.app}-{settings.aggregation.gar}-{digest}.json"
    path = RESULTS / kept / name
    if path.exists() and not fresh:
        return float(json.loads(path.read_text())["accuracy"])
    accuracy = _trained(settings, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**told, "accuracy": accuracy})
    return accuracy


def _trained(settings: Settings, threads: int) -> float:
    import torch

    from garfield.core.errors import DivergedError

    found: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if "accuracy" in event:
            found.append(event["accuracy"])

    torch.set_num_threads(1)  # gradients are computed side by side instead
    try:
        simulate(settings, note, threads=threads)
    except DivergedError:
        return 0.0
    return found[-1]
