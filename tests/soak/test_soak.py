"""Forty faults in processes, seeded; and as many in simulation. `make soak` for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from garfield.cli.drill import run_command
from garfield.launch.drill.schedule import StageKind
from garfield.launch.drill.stages import drilled
from tests.marks import heavy_but
from tests.soak.cases import IN_PROCESSES, SHAPES, soak_run

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

FAULTS = 8
RUNS = 5


def _held(app: str, stage: StageKind, seed: int, directory: Path) -> None:
    """In pytest's directory, whose path is too long for a socket's."""
    run = soak_run(app, stage, seed, FAULTS)
    report = drilled(run.settings, run.schedule, directory, command=run_command)
    told = [f"{o.what}: {v}" for o in report.outcomes for v in o.violations]
    replay = f"python -m tests.soak --replay {app} {stage.value} {seed} --each {FAULTS}"
    assert report.held, "\n".join([*told, replay])
    assert len(report.outcomes) == FAULTS + 2  # and the start, and the end


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "number", range(RUNS), ids=[f"{a}-{s.value}" for a, s in IN_PROCESSES[:RUNS]]
)
def test_a_run_of_processes_survives_eight_faults(number: int, tmp_path: Path) -> None:
    app, stage = IN_PROCESSES[number]
    _held(app, stage, number, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("app", heavy_but(SHAPES, "msmw"))
def test_a_simulated_run_survives_eight_faults(app: str, tmp_path: Path) -> None:
    _held(app, StageKind.SIMULATION, 1, tmp_path)
