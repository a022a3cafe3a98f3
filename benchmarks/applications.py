"""All applications beside each other: what each survives, and what that costs.

The same model and data for all, 18 workers and, where there are several servers, 6 of
these; without servers, 18 peers. As many are declared faulty, and lie, as `--liars` says:

    same      3 workers and 1 server for every application; DRACO computes a gradient 9 times
    own       as many as the application's own bound allows: there it is easiest to break

Accuracies, steps to the target and bytes come from simulation: they are the same in
every run, for each of the seeds. Updates per second come from short runs of real processes on
this machine, nobody lying, and are as noisy as the machine is busy; 18 workers share its cores.
Every cell is kept as soon as it is done: a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.applications_table import draw, legend, table
from garfield.apps import APPLICATIONS
from garfield.apps.application import Peers, SeveralServers
from garfield.apps.groups import NONE
from garfield.apps.settings import Settings
from garfield.core.errors import GarfieldError, MissingDependency
from garfield.core.files import as_json, write_json

QUESTION = "Which application learns under which attack, and what does it cost?"
ATTACKS = {
    NONE: (NONE, NONE),
    "reverse": ("reverse", "reverse"),
    "little-is-enough": ("little-is-enough", "little-is-enough"),
    "optimal": ("optimal-little-is-enough", "pull-apart"),
    "mimic": ("mimic", "equivocate(attack=mimic)"),
}
"""What workers say, and what servers say, by the name of both together."""
RESULTS = Path(__file__).parents[1] / "results"
WORKERS, SERVERS = 18, 6
SAME = (3, 1)
OWN = {
    "ssmw": (7, 0), "aggregathor": (7, 0), "draco": (4, 0), "msmw": (7, 2), "guanyu": (5, 1),
    "liubei": (7, 1), "decentralized": (7, 0),
}  # fmt: skip
"""The most lying workers and servers: 2f + 3 for Multi-Krum, 2f + 1 for the trimmed mean of models,
3f + 3 for GuanYu, 3f + 1 servers for LiuBei, and 9 ≥ 2f + 1 copies of a gradient for DRACO."""
TARGETS = {"mnist_cnn": 0.7, "digits_mlp": 0.9}
WARM_UP = 5
"""Steps of a run of real processes before its clock counts."""
BASE = Settings().updated(
    model="mnist_cnn", data="fashion-small", workers=WORKERS, gar="multi-krum", batch=32,
    learning_rate=0.02, momentum=0.9, evaluate_every=5, timeout_s=5.0, give_up_s=120.0,
)  # fmt: skip
QUICK = {"model": "digits_mlp", "data": "digits", "learning_rate": 0.05}
PLAIN = {"mnist_cnn": 0.1, "digits_mlp": 0.5}
"""LiuBei's learning rate: it has no momentum."""
GATHER_EVERY = 5
"""LiuBei's, fixed: at these rates the formula gives T = 1, and there would be no scatter."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--apps", nargs="+", choices=[*APPLICATIONS], help="applications (all)")
    group.add_argument("--liars", choices=["same", "own"], default="same", help="how many lie")
    group.add_argument("--seeds", type=int, default=5, help="runs of each cell (5)")
    group.add_argument("--steps", type=int, default=150, help="of each simulated run (150)")
    group.add_argument("--real-steps", type=int, default=40, help="of real processes (40)")
    group.add_argument("--again", action="store_true", help="forget the cells that are kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print the table, draw the picture; all numbers are returned."""
    kept = Kept(RESULTS / "applications", options.again, console)
    base, steps, real_steps = BASE, options.steps, options.real_steps
    if options.quick:
        base, steps, real_steps = BASE.updated(**QUICK), 50, 20
    target = TARGETS[base.learning.model]
    names = options.apps or sorted(APPLICATIONS, key=lambda name: name != "vanilla")
    lying = {app: OWN.get(app, SAME) if options.liars == "own" else SAME for app in names}
    console.print(legend(WORKERS, SERVERS, target, options.seeds), highlight=False)
    lines: dict[str, dict[str, Any]] = {app: {"liars": lying[app]} for app in names}
    for seed in range(options.seeds):  # all of one seed first: what is there is a table
        for app, cells in lines.items():
            for attack in ATTACKS:
                settings = settings_of(app, attack, lying[app], base).updated(
                    steps=steps, seed=seed
                )
                found = kept.cell(f"simulated-{options.liars}-{seed}", attack, settings, simulated)
                cells.setdefault(attack, []).append(found)
    for app, cells in lines.items():  # right after each other: the machine may change its mood
        settings = settings_of(app, NONE, SAME, base).updated(steps=real_steps, evaluate_every=0)
        try:
            cells["pace"] = kept.cell("real", NONE, settings, paced)
        except GarfieldError as problem:  # the machine may be too busy: try again later
            console.print(f"{app}: {problem}", highlight=False)
            cells["pace"] = {"updates_per_s": None}
    console.print(table(lines, [*ATTACKS], target))
    try:
        picture = draw(lines, [*ATTACKS], RESULTS / f"applications-{options.liars}.png")
        console.print(f"Picture: {picture}")
    except MissingDependency as missing:
        console.print(str(missing))
    return {"base": base.values(), "target": target, "applications": lines}


def settings_of(
    app: str, attack: str, lying: tuple[int, int] = SAME, base: Settings = BASE
) -> Settings:
    """The same run for every application, as far as it can be the same."""
    workers, servers = ATTACKS[attack]
    changes: dict[str, Any] = {
        "app": app, "worker_attack": workers, "byzantine_workers": lying[0]
    }  # fmt: skip
    application = APPLICATIONS[app]
    if isinstance(application, SeveralServers) and not isinstance(application, Peers):
        lie = {"byzantine_servers": lying[1], "server_attack": servers}
        changes |= {"servers": SERVERS, **lie}
    if app == "draco":
        changes["redundancy"] = 9
    if app == "liubei":
        plain = {"momentum": 0.0, "learning_rate": PLAIN[base.learning.model]}
        changes |= {**plain, "gather_every": GATHER_EVERY}
    return base.updated(**changes)


class Kept:
    """Cells on disk, one file each, valid for the settings that they were made with."""

    def __init__(self, directory: Path, again: bool, console: Console) -> None:
        self._directory, self._again, self._console = directory, again, console
        directory.mkdir(parents=True, exist_ok=True)

    def cell(self, kind: str, attack: str, settings: Settings, make: Any) -> dict[str, Any]:
        """What `make(settings)` found, now or before."""
        name = f"{kind}-{settings.learning.model}-{settings.app}-{attack}.json"
        path = self._directory / name
        used = json.loads(as_json(settings.values()))  # as it was read back
        if path.exists() and not self._again:
            before = json.loads(path.read_text())
            if before["settings"] == used:
                return dict(before["found"])
        began = time.perf_counter()
        with self._console.status(f"{settings.app}, {attack} ({kind})"):
            found: dict[str, Any] = make(settings)
        took = time.perf_counter() - began
        self._console.print(f"{settings.app}, {attack} ({kind}): {took:.0f} s")
        write_json(path, {"settings": used, "found": found})
        return found


def simulated(settings: Settings) -> dict[str, Any]:
    """Accuracy, its curve, and bytes, on a virtual clock."""
    from garfield.launch.simulate import simulate
    from garfield.runs.process import use_threads

    use_threads(1, settings.frameworks)
    events: list[Any] = []
    failure = None
    try:
        simulate(settings, events.append, threads=len(os.sched_getaffinity(0)))
    except GarfieldError as problem:
        failure = str(problem)
    curve = [(event["step"], event["accuracy"]) for event in events if "accuracy" in event]
    steps = [event for event in events if event["event"] == "step"]
    last = steps[-1] if steps else {"step": 0, "bytes_received": 0, "computed": 0}
    done = max(1, last["step"])
    return {
        "accuracy": curve[-1][1] if curve else None,
        "curve": curve,
        "bytes_per_step": last["bytes_received"] / done,
        "gradients_per_step": last["computed"] / done,
        "filters": last.get("filters"),
        "ended": failure or next((e["error"] for e in events if e["event"] == "diverged"), None),
    }


def paced(settings: Settings) -> dict[str, Any]:
    """Updates per second of real processes, as the first server sees them."""
    from garfield.launch.processes import run_processes

    times: dict[int, float] = {}

    def sink(event: Any) -> None:
        if event["event"] == "step" and event["node"] == settings.honest_servers[0]:
            times[event["step"]] = event["time_s"]

    run_processes(settings, sink)
    first, last = min(WARM_UP, settings.steps - 1), settings.steps
    return {
        "updates_per_s": (last - first) / (times[last] - times[first]),
        "steps": last - first,
        "load": os.getloadavg()[0],
    }
