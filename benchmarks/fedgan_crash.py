"""Figure 6.18: the server of a federated GAN is killed at mid-run. How long does it stand still?

Four devices and two servers, all of them processes, as `garfield fedgan train` starts them. Half
way the server that leads is killed (kill -9), and its backup takes over when the lease runs out.
Told is the longest time between two commits, beside the lease plus one round, which it must not
exceed, and the loss beside a run that nobody disturbs. Commits are watched in the database itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from benchmarks.alone import alone
from garfield.core.errors import RunError
from garfield.fedgan.state import StateDatabase, open_state_database
from garfield.report.plain_tables import plain_table

QUESTION = "How long does a federated GAN stand still when its server is killed?"
LEASE_S = 3.0
_LOOK_S, _PATIENCE_S = 0.02, 900.0


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--crash-rounds", type=int, default=20, help="rounds of each run")
    group.add_argument("--crash-times", type=int, default=3, help="runs with a crash")
    group.add_argument("--crash-steps", type=int, default=10, help="iterations of a device")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line for each run."""
    rounds = 6 if options.quick else options.crash_rounds
    steps = 1 if options.quick else options.crash_steps
    table = plain_table("", "s a round", "longest pause, s", "lease + a round, s", right=3)
    found = []
    for number in range(1 + (1 if options.quick else options.crash_times)):
        with alone(), tempfile.TemporaryDirectory() as folder:
            times = _committed(Path(folder) / "run", rounds, steps, kill=number > 0)
        pauses = [later - sooner for sooner, later in pairwise(times)]
        line = {
            "run": number,
            "killed": number > 0,
            "round_s": median(pauses),
            "longest_s": max(pauses),
        }
        line["allowed_s"] = LEASE_S + median(pauses)
        found.append(line)
        table.add_row(
            "its server is killed" if number else "undisturbed", f"{line['round_s']:.2f}",
            f"{line['longest_s']:.2f}", f"{line['allowed_s']:.2f}" if number else "–",
        )  # fmt: skip
    console.print(table)
    late = [each for each in found if each["killed"] and each["longest_s"] > each["allowed_s"]]
    told = f"exceeded in {len(late)} of {len(found) - 1}" if late else "never exceeded"
    console.print(f"A lease of {LEASE_S:g} s and one round: {told}.")
    return {"lease_s": LEASE_S, "rounds": rounds, "runs": found}


def _committed(out: Path, rounds: int, steps: int, *, kill: bool) -> list[float]:
    """When each round was committed, from the first on."""
    command = [
        sys.executable, "-m", "garfield", "fedgan", "train", "--gan", "lsgan(width=0.25)",
        "--data", "fashion-small", "--devices", "4", "--fraction", "0.5", "--partition", "iid",
        "--rounds", str(rounds), "--local-steps", str(steps), "--servers", "2",
        "--lease-s", str(LEASE_S), "--judge", "none", "--evaluate-every", "0",
        "--no-train-classifier", "--out", str(out),
    ]  # fmt: skip
    log = out.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        times = _watched(process, out, rounds, kill=kill)
        process.wait(_PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode or len(times) < rounds:
        text = " ".join(log.read_text(errors="replace").split()[-60:])
        raise RunError(f"The training ended with {process.returncode}, {len(times)} rounds: {text}")
    return times


def _watched(
    process: subprocess.Popen[bytes], out: Path, rounds: int, *, kill: bool
) -> list[float]:
    times: list[float] = []
    while not (out / "state.sqlite").exists() and process.poll() is None:
        time.sleep(_LOOK_S)
    with closing(open_state_database(str(out / "state.sqlite"), out.name)) as database:
        while process.poll() is None and len(times) < rounds:
            times += [time.monotonic() for _ in database.history(after=len(times))]
            if kill and len(times) >= rounds // 2:
                _kill_the_leader(process, database)
                kill = False
            time.sleep(_LOOK_S)
    return times


def _kill_the_leader(process: subprocess.Popen[bytes], database: StateDatabase) -> None:
    leader = database.leader()
    assert leader is not None
    family = psutil.Process(process.pid).children(recursive=True)
    [pid] = [each.pid for each in family if leader.name in " ".join(each.cmdline())]
    os.kill(pid, 9)
