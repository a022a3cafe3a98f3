"""What was measured is kept, so that a long benchmark goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from garfield.apps.settings import Settings
from garfield.core.files import write_json
from garfield.launch.simulate import simulate

RESULTS = Path(__file__).parents[1] / "results"


def kept(
    folder: str,
    name: str,
    what: Mapping[str, Any],
    measure: Callable[[], Any],
    *,
    fresh: bool,
    key: str = "found",
) -> Any:
    """What `measure` finds of `what`, as JSON has it.

    It is kept in results/`folder`, under a `name` for the eye and a digest of `what`, and not
    measured again unless it must be `fresh`.
    """
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    path = RESULTS / folder / f"{name}-{digest}.json"
    if path.exists() and not fresh:
        return json.loads(path.read_text())[key]
    found = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**what, key: found})
    return json.loads(path.read_text())[key]


def accuracy_of(
    settings: Settings, kept_in: str, *, fresh: bool = False, threads: int = 1
) -> float:
    """The accuracy that a simulated run ends with; 0 if its model diverged.

    Kept in results/`kept_in`.
    """
    usual = Settings().values()
    what = {k: v for k, v in settings.values().items() if k != "data_dir" and v != usual.get(k)}
    told = {**what, "gar": settings.aggregation.gar}  # the default may become another
    name = f"{settings.samples.data}-{settings.app}-{settings.aggregation.gar}"
    return float(
        kept(kept_in, name, told, lambda: _trained(settings, threads), fresh=fresh, key="accuracy")
    )


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
