"""What does it cost a TensorFlow worker to leave TensorFlow, and does it keep pace?

Conversion: a worker's step is a model that comes in as one vector, a gradient, and a
vector that goes out. Timed in the same steps: the two copies; beside them, the way
through protocol buffers that the thesis (3.4.1) describes. Shares are of CPU time of
the thread that copies, and so hold on a busy machine, too.

Pace: ssmw with TensorFlow, the same with PyTorch, and a plain Keras loop in one process
that uses all cores and the same total batch. In turns; the fastest round of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.throughput import Contender
from garfield.apps.settings import Settings

QUESTION = "What does a TensorFlow worker's conversion cost, and how fast is ssmw with it?"
TARGET = 0.03
"""The largest share of a CifarNet step at batch 32 that we accept."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tensorflow-model", default="cifarnet")
    group.add_argument("--tensorflow-data", default="cifar10")
    group.add_argument("--tensorflow-data-dir", default=None)
    group.add_argument("--tensorflow-workers", type=int, default=4)
    group.add_argument("--tensorflow-batch", type=int, default=32)
    group.add_argument("--tensorflow-rounds", type=int, default=3)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.tensorflow_alone", "convert"]
    size = [options.tensorflow_model, str(options.tensorflow_batch)]
    conversion = _json([*command, *size, "10" if options.quick else "40"])
    console.print(_conversion_table(conversion, *size))
    rounds = 1 if options.quick else options.tensorflow_rounds
    pace = _pace(options, rounds, 10 if options.quick else 30)
    console.print(_pace_table(pace, options))
    return {"conversion": conversion, "pace": pace}


def _pace(options: argparse.Namespace, rounds: int, steps: int) -> dict[str, float]:
    """Seconds a step, of each contender's fastest round."""
    warm_up = 5
    contenders = {
        name: _contender(options, name, steps + warm_up) for name in ("tensorflow", "torch")
    }
    total = options.tensorflow_workers * options.tensorflow_batch
    plain = [
        sys.executable, "-m", "benchmarks.tensorflow_alone", "plain",
        options.tensorflow_model, str(total), str(steps),
    ]  # fmt: skip
    alone = float("inf")
    for _ in range(rounds):
        for contender in contenders.values():
            contender.run(warm_up)
        alone = min(alone, _json(plain)["step_s"])
    return {"plain": alone, **{name: each.step_s for name, each in contenders.items()}}


def _contender(options: argparse.Namespace, framework: str, steps: int) -> Contender:
    settings = Settings.of(
        app="ssmw", framework=framework, model=options.tensorflow_model,
        data=options.tensorflow_data, data_dir=options.tensorflow_data_dir,
        workers=options.tensorflow_workers, f_workers=1, gar="median",
        batch=options.tensorflow_batch, steps=steps, learning_rate=0.01, evaluate_every=0,
        test_images=500, timeout_s=60.0, give_up_s=120.0,
    ).check()  # fmt: skip
    return Contender("ssmw", "memory", settings)


def _json(command: list[str]) -> dict[str, Any]:
    """What a process of its own has measured: TensorFlow keeps the threads it started with."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _conversion_table(found: dict[str, Any], model: str, batch: str) -> Table:
    title = f"{model}, batch {batch}, one thread: {1e3 * found['step_s']:.1f} ms of CPU a step"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for name in (
        "way",
        "ms in",
        "ms out",
        "share of a step",
        "bytes copied in, out",
        "× the vector",
    ):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way in ("garfield", "protobuf"):
        part = found[way]
        share = (part["in_s"] + part["out_s"]) / found["step_s"]
        verdict = "" if way == "protobuf" else ("[green]" if share < TARGET else "[red]")
        copied = part.get("copied")
        times = "" if copied is None else " + ".join(f"{x / found['bytes']:.2f}" for x in copied)
        table.add_row(
            way, f"{1e3 * part['in_s']:.2f}", f"{1e3 * part['out_s']:.2f}", f"{verdict}{share:.1%}",
            "" if copied is None else f"{copied[0]:,} + {copied[1]:,}",
            times,
        )  # fmt: skip
    return table


def _pace_table(pace: dict[str, float], options: argparse.Namespace) -> Table:
    workers, batch = options.tensorflow_workers, options.tensorflow_batch
    table = Table(title=f"{workers} workers of batch {batch}, median", box=box.SIMPLE_HEAD)
    for name in ("contender", "ms a step", "× plain TensorFlow", "× ssmw in PyTorch"):
        table.add_column(name, justify="left" if name == "contender" else "right")
    titles = {
        "tensorflow": "ssmw in TensorFlow", "torch": "ssmw in PyTorch",
        "plain": f"plain TensorFlow, one process, batch {workers * batch}",
    }  # fmt: skip
    for name, title in titles.items():
        step_s = pace[name]
        ratios = (step_s / pace["plain"], step_s / pace["torch"])
        table.add_row(title, f"{1e3 * step_s:.0f}", *(f"{ratio:.2f}" for ratio in ratios))
    return table
