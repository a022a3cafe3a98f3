"""Fine-tuning at a client with little memory, and at a weak one: plain, and split.

The question of the thesis's Figure 5.9, where plain fine-tuning runs out of memory and the split
does not, and where a weak client with the split keeps up with a strong one without. A client is
one core of this machine, `--memory` at most where there is little (RLIMIT_DATA: what cannot be
had ends the run), and half of the core where it is weak (control group, as far as allowed). The
link carries `--mbps`; the server beside the store has the other core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.split_world import SplitWorld, split_world
from garfield.core.errors import ConfigError
from garfield.report.plain_tables import plain_table
from garfield.split.server.settings import amount

QUESTION = (
    "Where does plain fine-tuning run out of memory, or of a weak core, and a split does not?"
)
WAYS = {"plain": ["--baseline", "--chunk", "0"], "split": []}
"""Plain is as in the thesis: whole batches."""
CLIENTS = ("strong", "little memory", "weak")
_QUOTAS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # of version 1 and 2


@dataclass(frozen=True)
class ClientRun:
    """One epoch, or what came of it."""

    model: str
    client: str
    way: str
    finished: int
    time_s: float | None
    peak_bytes: int | None
    split: int | None
    ended: str
    """Its last words where it did not finish."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", nargs="+", default=["alexnet", "resnet18"])
    group.add_argument("--images", type=int, default=500)
    group.add_argument("--batch", type=int, default=500)
    group.add_argument("--mbps", type=float, default=50)
    group.add_argument("--memory", default="1500MiB", help="of a client with little of it")
    group.add_argument("--clients", nargs="+", default=list(CLIENTS))


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per run, as they come."""
    models = options.models[:1] if options.quick else options.models
    images = batch = 64 if options.quick else None
    images, batch = images or options.images, batch or options.batch
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        split_world(Path(folder), images=images, per_object=50, stored_as=["uint8"]) as world,
    ):
        for model in models:
            # puts the weights beside the store, as the first of many runs does; does not count
            _ran(world, options, model, "strong", "split", batch, Path(folder) / f"first-{model}")
            for client in options.clients:
                for way in WAYS:
                    out = Path(folder) / f"run-{len(found)}"
                    found.append(_ran(world, options, model, client, way, batch, out))
                    console.print(_line(found[-1]), soft_wrap=True)
    console.print(_table(found))
    return {"runs": [asdict(each) for each in found]}


def _ran(
    world: SplitWorld,
    options: argparse.Namespace,
    model: str,
    client: str,
    way: str,
    batch: int,
    out: Path,
) -> ClientRun:
    world.network.limit(options.mbps)
    words = [*_words(world, model, batch, out), *WAYS[way]]
    if client == "little memory":
        words = ["prlimit", f"--data={amount(options.memory, 'memory')}", *words]
    if client == "weak":
        with _half_a_core() as prefix:
            done = _done([*prefix, *world.network.beside_client, *words], world)
    else:
        done = _done([*world.network.beside_client, *words], world)
    if done.returncode:
        told = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return ClientRun(model, client, way, 0, None, None, None, told[:200])
    summary = json.loads(done.stdout)
    return ClientRun(
        model,
        client,
        way,
        1,
        summary["time_s"],
        summary["peak_memory_client_bytes"],
        summary["split"],
        "",
    )


def _words(world: SplitWorld, model: str, batch: int, out: Path) -> list[str]:
    return [
        sys.executable, "-m", "garfield", "split", "train", "--data", world.data("uint8"),
        "--model", model, "--batch", str(batch), "--server", world.server,
        "--server-plain-http", "--plain-http", "--threads", "1", "--json", "--out", str(out),
    ]  # fmt: skip


def _done(words: list[str], world: SplitWorld) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=world.environment, capture_output=True, text=True, check=False)


@contextmanager
def _half_a_core() -> Iterator[list[str]]:
    """What to put before a command, so that it gets half of a core; ConfigError where none may."""
    base = next((each for each in _QUOTAS if os.access(each, os.W_OK)), None)
    if base is None:
        raise ConfigError("A weak client needs control groups: leave it out with --clients.")
    group = base / f"garfield-weak-{os.getpid()}"
    try:
        group.mkdir()
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("50000")
        else:
            (group / "cpu.max").write_text("50000 100000")
        # the shell joins the group, and becomes the command
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "weak"]
    except OSError as problem:
        raise ConfigError(f"A weak client needs control groups: {problem}.") from None
    finally:
        if group.is_dir():
            group.rmdir()


def _line(run: ClientRun) -> str:
    told = f"{run.time_s:.1f} s, split {run.split}" if run.time_s is not None else run.ended
    return f"{run.model}, {run.client}, {run.way}: {told}"


def _table(found: list[ClientRun]) -> Table:
    table = plain_table("model", "client", *WAYS, right=len(WAYS))
    for model, client in dict.fromkeys((each.model, each.client) for each in found):
        of = {each.way: each for each in found if (each.model, each.client) == (model, client)}
        times = [of[way].time_s if way in of else None for way in WAYS]
        cells = ["did not finish" if time is None else f"{time:.1f} s" for time in times]
        table.add_row(model, client, *cells)
    return table
