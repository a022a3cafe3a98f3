"""The same 16 cells by our runner of grids and by ByzFL's: seconds of each, and of the whole.

Two rules behind NNM, two attacks, f of 1 and 3 beside ten honest workers, data dealt alike and
unlike; mnist_cnn on the images that ship with the package, in both. Each runner is started as a
user starts it, with as many cells at once as there are cores, and timed from its start to its end:
imports, reading, training, evaluating twice, writing. ByzFL runs as it comes, and with one torch
thread for each cell, which it does not set itself; the faster of both is what we are held against.
Of a cell, ours is all of its time, and ByzFL's what it writes down: training and evaluation alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.alone import alone
from benchmarks.tables import QUIET
from benchmarks.timing import _others_s
from benchmarks.workers import ROOT, byzfl_python
from garfield.core.errors import MissingDependency, RunError
from garfield.data import load

QUESTION = "How fast is a grid of runs beside ByzFL's own runner?"
HONEST, BATCH = 10, 25  # as ByzFL's own configuration has them
RULES = {
    "nnm+trimmed-mean": {"name": "TrMean", "parameters": {}},
    "nnm+geometric-median": {"name": "GeometricMedian", "parameters": {"nu": 0.1, "T": 3}},
}
ATTACKS = {
    "fall-of-empires(epsilon=1.0)": "SignFlipping",  # the honest mean, times −1: one formula
    "optimal-little-is-enough(trials=20)": "Optimal_ALittleIsEnough",  # as many trials in both
}
FAULTS = (1, 3)
GAMMAS = (1.0, 0.33)
TARGET = 2.5  # times as fast as ByzFL on the whole grid, and slower in no cell
_TRIES, _LOOK_S = 2, 0.2
WAYS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "one thread a cell": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
}
OURS: dict[str, list[str]] = {
    "garfield": [],
    "one cell at a time": ["--processes", "1"],  # on all cores: is it right to run several?
}
Times = dict[tuple[str, str, int, float], float]
"""Seconds of each cell, by rule, attack, f and gamma."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--grid-steps", type=int, default=25, help="steps of each cell (25)")
    group.add_argument("--grid-rounds", type=int, default=1, help="times each runner runs (1)")
    group.add_argument(
        "--one-at-a-time", action="store_true", help="also ours with one cell on all cores"
    )


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Two tables; the seconds of all cells are returned."""
    python = byzfl_python(console.print)
    if python is None:
        raise MissingDependency("ByzFL is what this benchmark compares with.")
    steps = 6 if options.quick else options.grid_steps
    rounds = 1 if options.quick else options.grid_rounds
    ours = [way for way in OURS if not OURS[way] or options.one_at_a_time]
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in (*ours, *WAYS)}
    for number in range(rounds):
        for way in found:
            with console.status(f"{way}, {number + 1} of {rounds}"):
                found[way].append(_undisturbed(way, python, steps))
    for table in _tables(found, steps):
        console.print(table)
    return {"steps": steps, "cores": _cores(), "runs": {w: _plain(r) for w, r in found.items()}}


def _undisturbed(way: str, python: Path, steps: int) -> dict[str, Any]:
    """What `_timed` finds, once more where others took part of the machine."""
    runs = []
    for _ in range(_TRIES):
        with alone():
            runs.append(_timed(way, python, steps))
        if runs[-1]["others"] <= QUIET:
            break
    return min(runs, key=lambda run: run["others"])


def _timed(way: str, python: Path, steps: int) -> dict[str, Any]:
    """Seconds of the whole grid and of its cells, and how much others disturbed."""
    with tempfile.TemporaryDirectory(prefix="garfield-sweep-") as name:
        directory = Path(name)
        if way in OURS:
            _write_grid(directory, steps)
            command = [sys.executable, "-m", "garfield", "sweep", "grid.toml", "--out", "out"]
            command += ["--no-pictures", *OURS[way]]
        else:
            _write_config(directory, steps)
            command = [str(python), "-m", "benchmarks.byzfl_grid", name, str(_cores())]
        environment = {**os.environ, **WAYS.get(way, {})}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        began, busy = time.perf_counter(), _others_s()
        process = subprocess.Popen(
            command, cwd=directory, env=environment, text=True, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        with _SessionTime(process.pid) as spent:
            _, errors = process.communicate()
        whole_s = time.perf_counter() - began
        if process.returncode:
            raise RunError(f"{way} ended with {process.returncode}: {errors[-2000:]}")
        others_s = max(0.0, _others_s() - busy - spent.seconds)
        cells = _our_cells(directory) if way in OURS else _their_cells(directory)
    others = others_s / whole_s / _cores()
    return {"whole_s": whole_s, "cpu_s": spent.seconds, "cells": cells, "others": others}


class _SessionTime:
    """Processor seconds of all processes of a session, looked at often: pools reap their own."""

    def __init__(self, session: int) -> None:
        self._session, self._of = session, dict[int, float]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)

    def __enter__(self) -> _SessionTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return sum(self._of.values())

    def _look_often(self) -> None:
        while not self._done.wait(_LOOK_S):
            for path in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError, ValueError):
                    fields = path.read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self._session:  # then its user and system ticks
                        ticks = int(fields[11]) + int(fields[12])
                        self._of[int(path.parent.name)] = ticks / os.sysconf("SC_CLK_TCK")


def _write_grid(directory: Path, steps: int) -> None:
    lists = {
        "gar": list(RULES), "worker_attack": list(ATTACKS),
        "partition": [f"similarity(gamma={gamma})" for gamma in GAMMAS],
    }  # fmt: skip
    together = {"workers": [HONEST + f for f in FAULTS], "byzantine_workers": list(FAULTS)}
    shared = {
        "model": "mnist_cnn", "data": "fashion-small", "batch": BATCH, "steps": steps,
        "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "evaluate_every": steps // 2,
    }  # fmt: skip
    text = _toml(shared) + "[grid]\n" + _toml(lists) + "[[grid.zip]]\n" + _toml(together)
    (directory / "grid.toml").write_text(text)


def _toml(values: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _our_cells(directory: Path) -> Times:
    rows = json.loads((directory / "out" / "results.json").read_text())
    found = {}
    for row in rows:
        gamma = float(row["partition"].partition("=")[2].rstrip(")"))
        place = (row["gar"], row["worker_attack"], row["byzantine_workers"], gamma)
        found[place] = row["wall_s"]
    return found


def _write_config(directory: Path, steps: int) -> None:
    """The same grid in ByzFL's own words, and the images where torchvision looks for MNIST."""
    config = {
        "benchmark_config": {
            "training_algorithm": {"name": "DSGD", "parameters": {}}, "nb_steps": steps,
            "device": "cpu", "training_seed": 0, "nb_training_seeds": 1,
            "nb_honest_clients": HONEST, "f": list(FAULTS), "size_train_set": 1.0,
            "data_distribution_seed": 0, "nb_data_distribution_seeds": 1,
            "data_distribution": [
                {"name": "gamma_similarity_niid", "distribution_parameter": list(GAMMAS)}
            ],
        },
        "model": {
            "name": "mnist_cnn", "dataset_name": "mnist", "nb_labels": 10,
            "loss": "CrossEntropyLoss", "learning_rate": 0.1, "learning_rate_decay": 1.0,
            "milestones": [],
        },
        "aggregator": list(RULES.values()),
        "pre_aggregators": [{"name": "NNM", "parameters": {}}],
        "honest_clients": {"momentum": 0.9, "weight_decay": 1e-4, "batch_size": BATCH},
        "attack": [{"name": name, "parameters": {}} for name in ATTACKS.values()],
        "evaluation_and_results": {
            "evaluation_delta": steps, "batch_size_evaluation": 500, "evaluate_on_test": True,
            "store_per_client_metrics": False, "store_models": False, "data_folder": "./data",
            "results_directory": "./results",
        },
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    raw = directory / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = load("fashion-small")
    for split, prefix in (("train", "train"), ("test", "t10k")):
        pixels = np.asarray(images.pixels(split)).reshape(-1, 28, 28)
        labels = np.asarray(images.labels(split)).astype(np.uint8)
        _write_idx(raw / f"{prefix}-images-idx3-ubyte", pixels)
        _write_idx(raw / f"{prefix}-labels-idx1-ubyte", labels)


def _write_idx(path: Path, values: Any) -> None:
    assert values.dtype == np.uint8
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(head + values.tobytes())


def _their_cells(directory: Path) -> Times:
    found = {}
    names = {info["name"]: rule for rule, info in RULES.items()}
    attacks = {theirs: ours for ours, theirs in ATTACKS.items()}
    for path in (directory / "results").glob("*/train_time_tr_seed_0_dd_seed_0.txt"):
        config = json.loads((path.parent / "config.json").read_text())
        settings = config["benchmark_config"]
        gamma = settings["data_distribution"]["distribution_parameter"]
        place = (
            names[config["aggregator"]["name"]], attacks[config["attack"]["name"]], settings["f"],
            gamma,
        )  # fmt: skip
        found[place] = float(path.read_text())
    return found


def _tables(found: Mapping[str, list[dict[str, Any]]], steps: int) -> list[Table]:
    """The whole grid by runner, then the cells beside the faster of ByzFL's ways."""
    whole = {way: statistics.median(run["whole_s"] for run in runs) for way, runs in found.items()}
    rival = min(WAYS, key=lambda way: whole[way])
    title = f"16 cells of {steps} steps, {HONEST} honest workers and f, on {_cores()} cores"
    grid = Table("runner", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("s, whole grid", "times faster", "s of all cores", "others took"):
        grid.add_column(heading, justify="right")
    grid.add_column("")
    for way, runs in found.items():
        others = max(run["others"] for run in runs)
        ratio = whole[way] / whole["garfield"]
        name = f"ByzFL, {way}" if way in WAYS else "Garfield"
        name += f", {way}" if OURS.get(way) else ""
        verdict = _verdict(ratio >= TARGET, f"at least {TARGET:g}") if way == rival else ""
        seconds = " ".join(f"{run['whole_s']:.1f}" for run in runs)
        cpu = " ".join(f"{run['cpu_s']:.1f}" for run in runs)
        taken = f"{others:.0%}{_doubt(others)}"
        grid.add_row(name, seconds, f"{ratio:.2f}", cpu, taken, verdict)
    cells = Table(
        "rule", "attack", box=box.SIMPLE_HEAD, title_justify="left",
        title=f"Each cell, beside ByzFL {rival}",
    )  # fmt: skip
    for heading in ("f", "gamma", "Garfield s", "ByzFL s", "times faster"):
        cells.add_column(heading, justify="right")
    cells.add_column("")
    for place in product(RULES, ATTACKS, FAULTS, GAMMAS):
        ours, theirs = (
            statistics.median(run["cells"][place] for run in found[way])
            for way in ("garfield", rival)
        )
        rule, attack, f, gamma = place
        slower = "" if theirs >= ours else "[bold red]slower"
        cells.add_row(
            rule, attack, str(f), str(gamma), f"{ours:.2f}", f"{theirs:.2f}",
            f"{theirs / ours:.2f}", slower,
        )  # fmt: skip
    return [grid, cells]


def _verdict(met: bool, target: str) -> str:
    return f"{target}: {'[green]met' if met else '[bold red]missed'}[/]"


def _doubt(others: float) -> str:
    return " ?" if others > QUIET else ""


def _plain(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**run, "cells": [[*place, seconds] for place, seconds in run["cells"].items()]}
        for run in runs
    ]


def _cores() -> int:
    return len(os.sched_getaffinity(0))
