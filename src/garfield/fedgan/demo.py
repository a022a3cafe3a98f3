"""Four trainings beside each other: balanced sampling and KL weights, on and off.

The data are those of the package, the networks small, the devices poor in classes: it shows what
the parts do in a few minutes, not what they are worth. One seed says little of that;
`benchmarks/` asks it properly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from garfield.core.config import made
from garfield.core.events import Event, Sink
from garfield.fedgan.pictures import write_grid
from garfield.fedgan.settings import DemoSettings, FedganSettings
from garfield.fedgan.training import train
from garfield.report.fedgan_summary import fedgan_summary
from garfield.runs.run_directory import RunDirectory

CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    "neither": {"sampling": "random", "weighting": "uniform"},
    "weights": {"sampling": "random", "weighting": "kl"},
    "sampling": {"sampling": "balanced", "weighting": "uniform"},
    "both": {"sampling": "balanced", "weighting": "kl"},
}
"""s and w of the thesis's Figures 6.6 and 6.10, by name."""
_SHOWN = 10
"""Images of each training in the picture of all."""


def run_demo(settings: DemoSettings, path: Path, tell: Sink) -> dict[str, dict[str, Any]]:
    """Train four times below a directory; the summary of each by name."""
    found: dict[str, dict[str, Any]] = {}
    rows = []
    for number, (name, choice) in enumerate(CONFIGURATIONS.items()):
        tell({"event": "run", "name": name, "number": number, "of": len(CONFIGURATIONS)})
        directory = RunDirectory(path / name)
        chosen = made(
            FedganSettings,
            {
                "gan": "lsgan(width=0.25)", "data": "fashion-small", "devices": settings.devices,
                "fraction": 0.05, "max_class": settings.max_class, "max_samples": 200,
                "missing_classes": "allow", "rounds": settings.rounds,
                "local_steps": settings.local_steps, "seed": settings.seed,
                "evaluate_every": max(1, settings.rounds // 4), "train_classifier": False,
                "judged_images": settings.judged_images,
                **choice,
            },
        )  # fmt: skip
        events: list[Event] = []

        def heard(event: Event, events: list[Event] = events) -> None:
            events.append(event)
            tell(event)

        federation = train(chosen, directory, heard)
        found[name] = fedgan_summary(events)
        directory.write_summary(found[name])
        rows.append(federation.images(_SHOWN, seed=settings.seed))
    write_grid(torch.cat(rows), path / "images.png", columns=_SHOWN)
    return found
