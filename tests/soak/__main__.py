"""A soak: faults by the hundred, each looked at; `make soak`, or `python -m tests.soak`.

Every drill adds a line of JSON to a file. A soak that was interrupted goes on where it was when
it is started again with the same file; its last lines say what did not hold, and how to replay it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from garfield.cli.drill import run_command
from garfield.launch.drill.checks import Broken, Violation
from garfield.launch.drill.rehearsal import DrillReport, Outcome
from garfield.launch.drill.schedule import StageKind
from garfield.launch.drill.stages import drilled
from tests.soak.cases import SoakRun, soak_run, soak_runs

FAULTS = 8
"""In each drill."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--faults", "-n", type=int, default=40, help="how many in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulated", action="store_true", help="on a virtual clock")
    parser.add_argument("--each", type=int, default=FAULTS, help="how many in each drill")
    parser.add_argument("--out", type=Path, default=Path("results/soak.jsonl"))
    parser.add_argument("--replay", nargs=3, metavar=("APP", "STAGE", "SEED"), help="one drill")
    given = parser.parse_args()
    if given.replay:
        app, stage, seed = given.replay
        run = soak_run(app, StageKind(stage), int(seed), given.each)
        return 0 if not _drill(run)["violations"] else 1
    return _soak(given)


def _soak(given: argparse.Namespace) -> int:
    mine = {"soak": given.seed, "simulated": given.simulated, "each": given.each}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done = [row for row in _rows(given.out) if mine.items() <= row.items()]
    runs = soak_runs(given.seed, simulated=given.simulated, faults=given.each)
    for run in runs:
        if sum(row["faults"] for row in done) >= given.faults:
            break
        if run.schedule.seed < 1000 * given.seed + len(done):
            continue  # done before
        row = {**mine, **_drill(run)}
        done.append(row)
        with given.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return _sum_up(done)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _drill(run: SoakRun) -> dict[str, Any]:
    _say(f"{run.name}:")
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=_place(run)))
    try:
        report = drilled(run.settings, run.schedule, directory, command=run_command, tell=_tell)
    except Exception as failure:  # of a node that is simulated, or of ours: the soak goes on
        traceback.print_exc()
        report = DrillReport(run.schedule)
        wrong = Violation(Broken.MESSAGE, f"{type(failure).__name__}: {failure}")
        report.outcomes.append(Outcome("broke off", 0, 0.0, (wrong,)))
    if report.held:
        shutil.rmtree(directory, ignore_errors=True)
    took_s = round(time.monotonic() - began, 1)
    return {"app": run.app, "took_s": took_s, "kept": str(directory), **report.to_json()}


def _place(run: SoakRun) -> str | None:
    """In memory, if nothing real is killed: waiting for the disk is most of such a drill."""
    in_memory = run.schedule.stage is StageKind.SIMULATION and Path("/dev/shm").is_dir()
    return "/dev/shm" if in_memory else None


def _tell(outcome: Outcome) -> None:
    _say(f"  {outcome.took_s:5.1f} s  {outcome.what}")
    for violation in outcome.violations:
        _say(f"           ! {violation}")


def _sum_up(done: list[dict[str, Any]]) -> int:
    broken: Counter[str] = Counter()
    for row in done:
        broken.update(row["violations"])
    faults, took_s = sum(row["faults"] for row in done), sum(row["took_s"] for row in done)
    counts = ", ".join(f"{broken[each.value]} × {each.value}" for each in Broken)
    _say(f"{faults} faults in {len(done)} drills, {took_s:.0f} s: {counts}")
    for row in done:
        if row["violations"]:
            _say(f"  python -m tests.soak --replay {row['app']} {row['stage']} {row['seed']} "
                 f"--each {row['each']}    # {', '.join(row['violations'])}")  # fmt: skip
    return 1 if broken else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
