"""The stage of a drill from its kind and a run's settings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.launch.drill.rehearsal import DrillReport, Outcome, Stage, rehearse
from garfield.launch.drill.schedule import FaultKind, Schedule, StageKind, draw
from garfield.runs.supervised import Target

LONGEST_S = 2.5
"""How long a fault lasts at most; a quarter of give_up_s if that is less, as nodes end then."""
PATIENCE_S = 240.0
"""How long all nodes may take to go on, beside twice give_up_s: machines are busy, and at a load of
36 on two cores a run took two minutes to start. Who hangs does so for ever, and is told later."""


def schedule_of(
    settings: Settings, kind: StageKind, seed: int, count: int, kinds: Collection[FaultKind] = ()
) -> Schedule:
    """The faults that a seed draws against the nodes of a run."""
    if settings.nodes.transport != "grpc":
        raise ConfigError(
            f"Nodes are drilled over gRPC, and these talk by {settings.nodes.transport}. "
            "Remove the setting transport."
        )
    names = tuple(dict.fromkeys((*settings.server_names, *settings.worker_names)))
    longest_s = min(LONGEST_S, settings.rounds.give_up_s / 4)
    return draw(seed, kind, names, count, kinds=kinds, longest_s=longest_s)


def drilled(
    settings: Settings,
    schedule: Schedule,
    directory: Path,
    *,
    command: Target,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> DrillReport:
    """Rehearse a schedule with these settings; what the nodes leave goes to that directory.

    `command` is what runs ``garfield`` in a process.
    """
    patience_s = PATIENCE_S + 2 * settings.rounds.give_up_s
    return rehearse(schedule, _stage(settings, schedule, directory, command, patience_s), tell)


def _stage(
    settings: Settings, schedule: Schedule, directory: Path, command: Target, patience_s: float
) -> Stage:
    match schedule.stage:
        case StageKind.MEMORY:
            from garfield.launch.drill.launcher import LauncherStage

            return LauncherStage(settings, directory, patience_s=patience_s)
        case StageKind.SIMULATION:
            from garfield.launch.drill.simulated import SimulatedStage

            return SimulatedStage(settings, directory)
        case _:
            from garfield.launch.drill.nodes import NodeStage

            tls = schedule.stage is StageKind.TLS
            return NodeStage(settings, directory, tls=tls, command=command, patience_s=patience_s)
