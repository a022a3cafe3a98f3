"""What an elastic training costs while nothing is scaled: its loop beside plain DDP's.

Two workers, one thread each, hold two copies of a network and train them on the same batches, in
turns: a step of one under `ElasticTraining`, a step of the other under DistributedDataParallel in a
loop as a script has it without us, then the other way round. Noise of the machine lasts longer than
two steps, and so hits both. The cost is the mean over pairs of steps of what ours takes longer, a
tenth of the pairs left out at either end, loading included. What the thread takes that reads the
job's agreement is measured apart, as it runs beside both, and added. What workers do by the clock
they do half as often here, as half of the time is theirs. Both copies must end the same.

The goal is at most 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.elastic_worker import WIDTHS, images, network
from benchmarks.kept_runs import kept
from garfield.core.errors import RunError
from garfield.report.plain_tables import plain_table

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from garfield.elastic.job import ElasticTraining

QUESTION = "How much slower than plain DDP is an elastic training that is not scaled?"
GOAL_PERCENT = 2.0
WORKERS, BATCH, WARM_UP = 2, 64, 10
PAIRS = {"1.3 M": 600, "20 M": 150}
"""Pairs of steps, by the size of the network: two minutes at most."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--sizes", choices=list(WIDTHS), nargs="+", default=list(WIDTHS))
    group.add_argument("--anew", action="store_true", help="measure also what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A row for each size."""
    table = plain_table(
        "parameters",
        "DDP, ms a step",
        "slower by",
        "± (95 %)",
        "of it, the thread",
        "goal",
        right=5,
    )
    found = []
    for size in options.sizes:
        what = {"size": size, "pairs": PAIRS[size] // (10 if options.quick else 1), "batch": BATCH}
        name = size.replace(" ", "")
        line = kept("elastic_overhead", name, what, lambda w=what: _measured(w), fresh=options.anew)
        found.append({"size": size, **line})
        word = "met" if line["percent"] <= GOAL_PERCENT else "missed"
        table.add_row(
            size, f"{line['plain_ms']:.2f}", f"{line['percent']:+.2f} %", f"{line['half']:.2f} %",
            f"{line['thread_percent']:.2f} %", f"{GOAL_PERCENT:g} %: {word}",
        )  # fmt: skip
    console.print(table)
    return {"overhead": found}


def _measured(what: dict[str, Any]) -> dict[str, Any]:
    """Start the workers, and compare what the first of them timed."""
    with alone(), tempfile.TemporaryDirectory(prefix="garfield-overhead-") as directory:
        words = [sys.executable, "-m", "benchmarks.elastic_overhead", directory, json.dumps(what)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        workers = [
            subprocess.Popen([*words, str(rank)], env=environment) for rank in range(WORKERS)
        ]
        codes = [worker.wait() for worker in workers]
        if any(codes):
            raise RunError(f"The workers of the measurement ended with {codes}.")
        told = json.loads((Path(directory) / "times.json").read_text())
    return {**summary(told["pairs"], told["thread_s"]), "pairs": told["pairs"]}


def summary(pairs: Sequence[tuple[float, float]], thread_s: float) -> dict[str, float]:
    """Of (elastic, plain) seconds of steps, and what the thread took beside them."""
    plain_s = statistics.median(plain for _, plain in pairs)
    longer = sorted((elastic - plain) / plain_s for elastic, plain in pairs)
    cut = len(longer) // 10
    kept_pairs = longer[cut : len(longer) - cut]
    half = 1.96 * statistics.stdev(kept_pairs) / len(kept_pairs) ** 0.5
    thread = thread_s / sum(elastic for elastic, _ in pairs)
    return {
        "percent": 100 * (statistics.fmean(kept_pairs) + thread),
        "half": 100 * half,
        "thread_percent": 100 * thread,
        "plain_ms": 1e3 * plain_s,
    }


# -- a worker -------------------------------------------------------------------------------------


def work(directory: Path, what: dict[str, Any], rank: int) -> None:
    """Take steps of both kinds in turns; the first worker tells how long each took."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from garfield.elastic.job import ElasticOptions, ElasticTraining
    from garfield.elastic.job.environment import JobAccess
    from garfield.elastic.job.on_sqlite import SqliteCoordination

    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours = network(what["size"])
    theirs = deepcopy(ours)
    members = [f"w{number}" for number in range(WORKERS)]
    coordination = SqliteCoordination(directory / "job.sqlite")
    coordination.propose(members, after=0)  # the first of them does
    access = JobAccess(coordination, members[rank])
    options = ElasticOptions(batch=BATCH, poll_s=2 * ElasticOptions.poll_s)
    with ElasticTraining(ours, _optimizer(ours), images(), options, access=access) as job:
        ddp = DistributedDataParallel(theirs, process_group=dist.new_group())
        steps = {"elastic": _elastic(job), "plain": _plain(ddp, _optimizer(theirs), rank)}
        pairs: list[tuple[float, float]] = []
        thread_s = 0.0
        for number in range(WARM_UP + what["pairs"]):
            if number == WARM_UP:
                thread_s = _thread_s()
            took = {}
            for kind in sorted(steps, reverse=bool(number % 2)):
                at = time.perf_counter()
                next(steps[kind])
                took[kind] = time.perf_counter() - at
            if number >= WARM_UP:
                pairs.append((took["elastic"], took["plain"]))
        told = {"pairs": pairs, "thread_s": _thread_s() - thread_s}
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)
        job.leave()
        for _ in steps["elastic"]:  # until both have
            pass
    if rank == 0:
        (directory / "times.json").write_text(json.dumps(told))


def _elastic(job: ElasticTraining) -> Iterator[None]:
    """The loop with us, a step at a time."""
    from torch.nn.functional import cross_entropy

    for _ in job.epochs(10**9):
        for x, y in job.batches():
            with job.step():
                job.backward(cross_entropy(job.model(x), y))
            yield


def _plain(ddp: nn.Module, optimizer: Optimizer, rank: int) -> Iterator[None]:
    """The loop of a script without us."""
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    from garfield.elastic.job.cursor import Cursor, Division

    data = images()
    place, division = Cursor(len(data)), Division(rank, WORKERS, BATCH)
    while True:
        parts = [list(part.indices) for part in place.micro_batches(division)]
        for x, y in DataLoader(data, batch_sampler=parts):
            cross_entropy(ddp(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            # where ours does it: who begins while the other's gradients are still held needs fresh
            # pages for its own, 80 MB of them at 20 M parameters
            optimizer.zero_grad()
            yield
        place = place.after(len(data))


def _optimizer(model: nn.Module) -> Optimizer:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def _thread_s() -> float:
    """Seconds of the processor that the thread beside the training has taken so far."""
    (watcher,) = [each for each in threading.enumerate() if each.name == "garfield-elastic"]
    ran_ns = Path(f"/proc/self/task/{watcher.native_id}/schedstat").read_text().split()[0]
    return int(ran_ns) / 1e9


if __name__ == "__main__":
    work(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
