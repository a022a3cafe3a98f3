"""Time to plan a queue of requests for features: batch adaptation, equation 5.1.

Queues are drawn from the memory per image of the thesis's models; the worst kind has weights of
all sizes, so that what is left over is shared out again and again. The thesis reports 25 ms
(section 5.6.6); the target is 5 ms for 100 requests. The fastest of many calls counts.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.timing import fastest
from garfield.split.scheduler import Device, Request, assign

QUESTION = "How long does a split server take to plan its queue?"
TARGET_MS = 5.0
MIB = 2**20
PER_IMAGE = (1.5, 6.0, 13.0, 24.0, 27.0)  # MiB: AlexNet, ResNet-18 and -50, VGG-11, DenseNet-121


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--requests", type=int, nargs="+", default=[10, 100, 1000], help="queued")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A row per kind and length of queue, all within one table."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("queue", "requests", "devices", "admitted", "ms"):
        table.add_column(heading, justify="left" if heading == "queue" else "right")
    found = []
    for count in options.requests:
        for kind, queue, devices in _cases(count):
            timed = fastest(
                {kind: lambda q=queue, d=devices: assign(q, d)},
                lambda: None,
                budget_s=0.2 if options.quick else 1.0,
            )
            ms = 1e3 * timed.best[kind]
            admitted = len(assign(queue, devices).admitted)
            table.add_row(kind, str(count), str(len(devices)), str(admitted), f"{ms:.2f}")
            found.append({"queue": kind, "requests": count, "devices": len(devices), "ms": ms})
    console.print(table)
    worst = max((each["ms"] for each in found if each["requests"] == 100), default=None)
    if worst is not None:
        word = "met" if worst < TARGET_MS else "missed"
        console.print(f"100 requests in {worst:.2f} ms at worst: target {TARGET_MS:g} ms {word}.")
    return {"planned": found, "target_ms": TARGET_MS}


def _cases(count: int) -> list[tuple[str, list[Request], list[Device]]]:
    draw = random.Random(0)
    models = [
        Request(str(at), draw.randrange(5, 200) * MIB, int(draw.choice(PER_IMAGE) * MIB), 1000)
        for at in range(count)
    ]
    all_sizes = [Request(str(at), MIB, 1 + int(1.3 ** (at % 60)), 10**6) for at in range(count)]
    room = sum(each.needs(100) for each in models)
    return [
        ("models, room for all", models, [Device("cpu", room)]),
        ("models, two devices", models, [Device(name, room // 2) for name in "ab"]),
        ("models, room for few", models, [Device("cpu", room // 20)]),
        ("all sizes", all_sizes, [Device("cpu", count * (MIB + 10**9) + 777)]),
    ]
