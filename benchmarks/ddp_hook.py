"""DistributedDataParallel with a rule in place of the average, beside plain DDP.

One group of ranks holds a DDP model for every rule and a plain one, and takes one step
with each in turn, in another order every round, so that noise hits all alike. A step is
forward, backward and optimizer; the time is rank 0's, and a barrier stands between
steps. A ratio is that of the fastest steps of all rounds, as noise only adds time;
"average" shows what the exchange costs without any robustness.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from garfield.core.errors import GarfieldError
from garfield.gars import init, parse

QUESTION = "What does a rule cost in DDP, instead of its average?"
RULES = ("average", "median", "trimmed-mean", "multi-krum", "mda", "nnm+multi-krum")
WAIT_S = 600.0
PLAIN = "plain DDP"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--ranks", type=int, default=5, help="processes, f = 1 of which may lie (5)")
    group.add_argument("--ddp-model", default="cifarnet", help="a model by name (cifarnet)")
    group.add_argument("--ddp-batch", type=int, default=32, help="samples per rank and step (32)")
    group.add_argument("--ddp-rules", nargs="+", default=RULES, help="rules or chains")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print step times and ratios."""
    n, rules = options.ranks, list(options.ddp_rules)
    for rule in rules:
        init(rule, n=n, f=_faults(rule))  # refused before anything starts
    job = {
        "model": options.ddp_model, "batch": options.ddp_batch, "rules": rules,
        "rounds": 5 if options.quick else 25,
    }  # fmt: skip
    load = os.getloadavg()[0]  # before: the ranks themselves are a load
    with console.status(f"{n} ranks, {job['rounds']} rounds"), _ranks(job, n) as pipe:
        if not pipe.poll(WAIT_S):
            raise GarfieldError(f"The ranks did not finish in {WAIT_S:g} s.")
        times: dict[str, list[float]] = pipe.recv()
    fastest = {name: min(taken) for name, taken in times.items()}
    cores = len(os.sched_getaffinity(0))
    title = f"{options.ddp_model}, {n} ranks on {cores} cores, which had a load of {load:.1f}"
    console.print(_table(fastest, title))
    return {**job, "ranks": n, "step_s": fastest, "all_s": times}


def _table(fastest: dict[str, float], title: str) -> Table:
    table = Table("aggregation", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("ms per step", "ratio to plain"):
        table.add_column(heading, justify="right")
    for name, step_s in fastest.items():
        table.add_row(name, f"{step_s * 1e3:.1f}", f"{step_s / fastest[PLAIN]:.2f}")
    return table


@contextmanager
def _ranks(job: dict[str, Any], n: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "garfield.torch_ddp"])
    ours, theirs = context.Pipe()
    with TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        ranks = [
            context.Process(target=_rank, args=(job, rank, n, store, theirs), daemon=True)
            for rank in range(n)
        ]
        for rank in ranks:
            rank.start()
        try:
            yield ours
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()


def _rank(job: dict[str, Any], rank: int, n: int, store: Path, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from garfield import set_threads, torch_ddp
    from garfield.models import build

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    set_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=n)
    models = {}
    for name in (PLAIN, *job["rules"]):
        models[name] = DistributedDataParallel(build(job["model"], seed=0))
        if name != PLAIN:
            torch_ddp.robust(models[name], gar=name, f=_faults(name))
    times: dict[str, list[float]] = {name: [] for name in models}
    order, names = random.Random(0), list(models)
    for turn in range(-3, job["rounds"]):  # three to warm up: DDP rebuilds its buckets
        order.shuffle(names)
        for name in names:
            dist.barrier()
            taken = _step(models[name], job["batch"], seed=n * turn + rank)
            if turn >= 0:
                times[name].append(taken)
    if rank == 0:
        pipe.send(times)
    time.sleep(WAIT_S)  # until the parent ends us all: who leaves first would disturb the others


def _step(ddp: Any, batch: int, seed: int) -> float:
    import torch

    draw = torch.Generator().manual_seed(seed + 1_000_000)
    x = torch.randn(batch, 3, 32, 32, generator=draw)
    y = torch.randint(10, (batch,), generator=draw)
    began = time.perf_counter()
    torch.nn.functional.cross_entropy(ddp(x), y).backward()
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.sub_(parameter.grad, alpha=0.01)
            parameter.grad = None
    return time.perf_counter() - began


def _faults(rule: str) -> int:
    return 1 if parse(rule).robust else 0
