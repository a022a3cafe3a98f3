"""How much slower than PyTorch's DistributedDataParallel is each application?

All on this host, as many workers as DDP has ranks, one thread each, same model
and batches, nobody lying (Figures 3.6 and 3.7 of the thesis). Every contender
runs once a round, in another order each time; its fastest round counts, as
noise only ever adds time.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import ddp
from garfield.apps.settings import Settings
from garfield.core.events import Event
from garfield.launch.links import LinkKind
from garfield.launch.node import NodeOptions
from garfield.launch.processes import Processes

QUESTION = "How much slower than DistributedDataParallel (gloo) is each application?"
TARGETS = {"ssmw": 1.1, "msmw": 1.6, "decentralized": 2.0}
"""The largest slowdown we accept at 8 workers (6 without servers), batch 32, CifarNet, memory."""
THESIS = {
    "ssmw": "1.7-5.9", "crash-tolerant": "1.8-6.4", "msmw": "1.9-6.4", "decentralized": "2.6-12.4",
}  # fmt: skip
"""Slowdowns on CPUs in Figure 3.6."""
PEERS = 6  # nodes without servers
KINDS: tuple[LinkKind, ...] = ("memory", "tcp", "tls")


@dataclass
class Contender:
    """An application over a link, and its fastest round."""

    app: str
    by: LinkKind
    settings: Settings
    step_s: float = float("inf")
    breakdown: dict[str, float] = field(default_factory=dict)

    def run(self, warm_up: int) -> None:
        record = _Record(self.settings, warm_up)
        with Processes(self.settings, NodeOptions(threads=1), by=self.by) as nodes:
            nodes.start()
            nodes.run(record)
        if record.step_s < self.step_s:
            self.step_s, self.breakdown = record.step_s, record.breakdown


class _Record:
    """The pace of the first server, and where its time went."""

    def __init__(self, settings: Settings, warm_up: int) -> None:
        self._server, self._warm_up = settings.honest_servers[0], warm_up
        self._computes_itself = self._server in settings.worker_names
        self._first: Event = {}
        self._last: Event = {}
        self._computing: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        if event["event"] == "worker" or "compute_s" in event:
            self._computing[event["node"]] = event
        if event["event"] != "step" or event["node"] != self._server:
            return
        if event["step"] == self._warm_up:
            self._first = event
        self._last = event

    @property
    def step_s(self) -> float:
        return self._per_step("time_s")

    @property
    def breakdown(self) -> dict[str, float]:
        """Per step: computing (mean of all workers), waiting beyond that, aggregating."""
        computing = [e["compute_s"] / e["computed"] for e in self._computing.values()]
        compute_s = mean(computing) if computing else 0.0
        # a server waits while its workers compute; a peer has computed before it asks
        waited_s = self._per_step("communication_s") - (0 if self._computes_itself else compute_s)
        return {
            "compute_s": compute_s, "communication_s": max(0.0, waited_s),
            "aggregation_s": self._per_step("aggregation_s"),
        }  # fmt: skip

    def _per_step(self, name: str) -> float:
        steps = self._last["step"] - self._first["step"]
        return float((self._last[name] - self._first[name]) / steps)


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", default="cifarnet")
    group.add_argument("--data", default="cifar10")
    group.add_argument("--data-dir", default=None)
    group.add_argument("--workers", type=int, default=8)
    group.add_argument("--batch", type=int, default=32)
    group.add_argument("--steps", type=int, default=30)
    group.add_argument("--rounds", type=int, default=3)
    group.add_argument("--links", nargs="+", default=list(KINDS), choices=KINDS)
    group.add_argument("--apps", nargs="+", default=["vanilla", *THESIS])


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    steps, rounds = (8, 1) if options.quick else (options.steps, options.rounds)
    warm_up = max(2, steps // 10)
    contenders = [
        Contender(app, by, _settings(options, app, steps + warm_up))
        for app in options.apps
        for by in options.links
    ]
    rivals = {
        workers: ddp.Job(
            options.model, options.data, options.data_dir, workers, options.batch, steps, warm_up
        )
        for workers in sorted({len(each.settings.worker_names) for each in contenders})
    }
    fastest = dict.fromkeys(rivals, float("inf"))
    order, began, busy = random.Random(0), time.perf_counter(), _idle_s()
    for number in range(rounds):
        console.print(f"round {number + 1} of {rounds}")
        turns: list[Any] = [*contenders, *rivals]
        order.shuffle(turns)
        for turn in turns:
            if isinstance(turn, Contender):
                turn.run(warm_up)
            else:
                fastest[turn] = min(fastest[turn], mean(ddp.step_times(rivals[turn])))
    idle = (_idle_s() - busy) / (time.perf_counter() - began)
    console.print(_table(contenders, fastest, options))
    console.print(f"[dim]cores were idle for {idle:.0%} of the time, starting nodes included[/]")
    applications = [
        {
            "model": options.model,
            "app": each.app, "link": each.by, "workers": len(each.settings.worker_names),
            "servers": len(each.settings.server_names), "step_s": each.step_s,
            "ddp_step_s": fastest[len(each.settings.worker_names)],
            "slowdown": each.step_s / fastest[len(each.settings.worker_names)],
            "breakdown": each.breakdown, "settings": each.settings.values(),
            **{f"{part}_share": share for part, share in _shares(each).items()},
        }
        for each in contenders
    ]  # fmt: skip
    parts = [
        {"model": options.model, "app": each.app, "link": each.by, "part": name.removesuffix("_s"),
         "ms": 1e3 * took}
        for each in contenders
        for name, took in each.breakdown.items()
    ]  # fmt: skip
    return {"applications": applications, "parts": parts}


def _shares(each: Contender) -> dict[str, float]:
    """Of a step, in percent: what it computes, communicates, aggregates."""
    whole = sum(each.breakdown.values())
    return {name.removesuffix("_s"): 100 * s / whole for name, s in each.breakdown.items()}


def _settings(options: argparse.Namespace, app: str, steps: int) -> Settings:
    shared = {
        "model": options.model, "data": options.data, "data_dir": options.data_dir,
        "gar": "multi-krum",
        "batch": options.batch, "steps": steps, "learning_rate": 0.01, "evaluate_every": 0,
        "test_images": 500,
    }  # fmt: skip
    workers = PEERS if app == "decentralized" else options.workers
    robust = {} if app in ("vanilla", "crash-tolerant") else {"f_workers": 1}
    several = {"msmw": {"servers": 3, "f_servers": 1}, "crash-tolerant": {"servers": 3}}
    servers = several.get(app, {})
    return Settings.of(app=app, workers=workers, **shared, **robust, **servers).check()


def _table(contenders: list[Contender], ddp_s: dict[int, float], options: Any) -> Table:
    title = f"{options.model}, batch {options.batch}: " + ", ".join(
        f"DDP with {n} workers {1e3 * took:.0f} ms a step" for n, took in ddp_s.items()
    )
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for name in ("application", "link", "ms/step", "slowdown", "target", "thesis"):
        table.add_column(name, justify="left" if name in ("application", "link") else "right")
    for name in ("compute", "communication", "aggregation"):
        table.add_column(f"{name} ms", justify="right")
    for each in contenders:
        ratio = each.step_s / ddp_s[len(each.settings.worker_names)]
        target = TARGETS.get(each.app) if each.by == "memory" else None
        verdict = "" if target is None else ("[green]" if ratio <= target else "[red]")
        table.add_row(
            each.app, each.by, f"{1e3 * each.step_s:.0f}", f"{verdict}{ratio:.2f}",
            "" if target is None else f"{target:g}", THESIS.get(each.app, ""),
            *(f"{1e3 * part:.0f}" for part in each.breakdown.values()),
        )  # fmt: skip
    return table


def _idle_s() -> float:
    """Share-seconds that all cores together were idle so far."""
    with open("/proc/stat") as stat:
        idle = int(stat.readline().split()[4])
    return idle / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
