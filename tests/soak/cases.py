"""The runs of a soak: every application on every stage, small enough for hundreds of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from garfield.apps.settings import Settings
from garfield.launch.drill.schedule import Schedule, StageKind
from garfield.launch.drill.stages import schedule_of

SMALL = Settings.of(
    model="digits_mlp", data="digits", batch=16, gar="median", f_workers=1, evaluate_every=25,
    timeout_s=2.0, give_up_s=30.0, checkpoint_every=5,
)  # fmt: skip

SHAPES = {
    "msmw": {"workers": 4, "servers": 4, "f_servers": 1},
    "decentralized": {"workers": 5},
    "ssmw": {"workers": 4},
    "aggregathor": {"workers": 4},
}
"""As few nodes as bear one fault, and take back who was away."""

IN_PROCESSES = (
    ("msmw", StageKind.TLS), ("ssmw", StageKind.TCP), ("decentralized", StageKind.MEMORY),
    ("aggregathor", StageKind.TLS), ("msmw", StageKind.MEMORY), ("decentralized", StageKind.TCP),
    ("ssmw", StageKind.TLS), ("aggregathor", StageKind.MEMORY), ("msmw", StageKind.TCP),
    ("decentralized", StageKind.TLS), ("ssmw", StageKind.MEMORY), ("aggregathor", StageKind.TCP),
)  # fmt: skip
"""In an order in which the first few hold some of everything."""

SIMULATED = tuple((app, StageKind.SIMULATION) for app in SHAPES)


@dataclass(frozen=True)
class SoakRun:
    """One drill of a soak."""

    app: str
    settings: Settings
    schedule: Schedule

    @property
    def name(self) -> str:
        return f"{self.app} over {self.schedule.stage.value}, seed {self.schedule.seed}"


def soak_run(app: str, stage: StageKind, seed: int, faults: int) -> SoakRun:
    """One drill; in a simulation one of the workers lies besides."""
    settings = SMALL.updated(app=app, seed=seed, **SHAPES[app])
    if stage is StageKind.SIMULATION:
        settings = settings.updated(
            workers=settings.nodes.workers + 2, f_workers=2, byzantine_workers=1,
            worker_attack="reverse", **({"servers": 5} if app == "msmw" else {}),
        )  # fmt: skip
    return SoakRun(app, settings, schedule_of(settings, stage, seed, faults))


def soak_runs(seed: int, *, simulated: bool, faults: int) -> Iterator[SoakRun]:
    """Drill after drill, for ever; each with a seed of its own."""
    cells = SIMULATED if simulated else IN_PROCESSES
    for number in count():
        app, stage = cells[number % len(cells)]
        yield soak_run(app, stage, 1000 * seed + number, faults)
