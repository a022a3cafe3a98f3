"""Memory of a server and of a worker beyond plain training of the same model.

A node may take q + 3 vectors more, q being what it pulls: gradients and models. All
processes are forked from one forkserver that has everything imported, so what they
share is the same for all. What counts is the peak, sampled every few milliseconds:
anonymous memory, and sealed memory that the process holds or has mapped, each piece
once per process whether it made it or was given it. A vector is 4 d bytes; the model
should be large, since what gRPC keeps in flight (some MB a peer) counts as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from garfield.apps.settings import Settings
from garfield.launch.links import LinkKind
from garfield.launch.node import NodeOptions
from garfield.launch.processes import Processes
from garfield.models import MODELS

QUESTION = "How much memory does a node take beyond plain training?"
MORE = 3  # vectors beyond the q that it pulls
PAUSE_S = 0.005
KINDS: tuple[LinkKind, ...] = ("memory", "tcp")


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--memory-model", default="resnet50", help="of 3×32×32 images (resnet50)")
    group.add_argument("--memory-data-dir", help="where cifar10 lies, as for garfield train")
    group.add_argument("--memory-workers", type=int, default=5, help="(5)")
    group.add_argument("--memory-links", nargs="+", choices=KINDS, default=list(KINDS))
    group.add_argument("--memory-apps", nargs="+", default=["ssmw", "msmw"], help="(ssmw msmw)")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One table; the peaks in bytes are returned."""
    model = "cifarnet" if options.quick else options.memory_model
    vector = 4 * (MODELS[model].parameters or 0)
    table = _table(model, vector)
    peaks: list[dict[str, Any]] = []
    for app in options.memory_apps:
        settings = _settings(app, model, options)
        for by in options.memory_links:
            with console.status(f"{app}, {by}"):
                found = _peaks(settings, by)
                plain = _plain_peak(settings)
            for role, q in _pulls(settings).items():
                peak = max(size for name, size in found.items() if name.startswith(role))
                more = (peak - plain) / vector
                mark = "[green]met" if more <= q + MORE else "[bold red]missed"
                table.add_row(app, by, role, str(q), f"{more:.1f}", str(q + MORE), mark)
                line = {"app": app, "link": by, "role": role, "q": q, "peak": peak}
                peaks.append({**line, "plain": plain, "vectors_more": more})
    console.print(table)
    return {"model": model, "vector_bytes": vector, "peaks": peaks}


def _table(model: str, vector: int) -> Table:
    title = f"{model}: a vector has {vector / 1e6:.0f} MB; vectors beyond plain training, peak"
    table = Table("application", "link", "node", title=title, title_justify="left")
    table.box = box.SIMPLE_HEAD
    for heading in ("pulls q", "vectors more", "at most"):
        table.add_column(heading, justify="right")
    table.add_column("")
    return table


def _settings(app: str, model: str, options: argparse.Namespace) -> Settings:
    servers = {"servers": 3, "f_servers": 1} if app in ("msmw", "crash-tolerant") else {}
    return Settings.of(
        app=app, gar="multi-krum", model=model, data="cifar10", batch=2,
        data_dir=options.memory_data_dir, workers=options.memory_workers, f_workers=1, steps=8,
        learning_rate=0.001,
        evaluate_every=0, test_images=2, timeout_s=60.0, give_up_s=300.0, **servers,
    ).check()  # fmt: skip


def _pulls(settings: Settings) -> dict[str, int]:
    """How many vectors a node of each role has pulled at once, at most."""
    numbers = settings.numbers
    models = numbers.q_ps
    if settings.server_names == settings.worker_names:
        return {"node": numbers.q_w + numbers.q_ps}
    return {"server": numbers.q_w + (models if settings.app == "msmw" else 0), "worker": models}


def _peaks(settings: Settings, by: LinkKind) -> dict[str, int]:
    with Processes(settings, NodeOptions(threads=1), by=by) as nodes:
        nodes.start()
        with _watched(nodes.pids) as peaks:
            nodes.run(lambda event: None)
    return peaks


def _plain_peak(settings: Settings) -> int:
    """Of a process that trains the model by itself, with SGD and momentum."""
    ours, theirs = multiprocessing.get_context("forkserver").Pipe()
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_train, args=(settings, theirs), daemon=True)
    process.start()
    try:
        ours.recv_bytes()  # it has started: before, it is not what it will be
        with _watched({"plain": process.pid or 0}) as peaks:
            ours.send_bytes(b"go")
            ours.recv_bytes()
        return peaks["plain"]
    finally:
        process.kill()
        process.join()


def _train(settings: Settings, pipe: Connection) -> None:
    import torch
    from torch.nn.functional import cross_entropy

    from garfield.data import load
    from garfield.models import build

    torch.set_num_threads(1)
    data = load(settings.samples.data, settings.samples.data_dir)
    assert data.pixels("test").any()  # as who evaluates must have them at hand
    module = build(settings.learning.model, classes=len(data.classes), seed=settings.seed)
    sgd = torch.optim.SGD(module.parameters(), lr=settings.learning.learning_rate, momentum=0.9)
    pipe.send_bytes(b"ready")
    pipe.recv_bytes()
    for step in range(settings.steps):
        part = slice(step * settings.learning.batch, (step + 1) * settings.learning.batch)
        images = torch.from_numpy(data.images("train", part))
        sgd.zero_grad()
        cross_entropy(module(images), torch.from_numpy(data.labels("train")[part])).backward()
        sgd.step()
    pipe.send_bytes(b"done")


@contextmanager
def _watched(pids: dict[str, int]) -> Iterator[dict[str, int]]:
    """The largest size of each process so far; complete when the block is left."""
    peaks, over = dict.fromkeys(pids, 0), threading.Event()

    def look() -> None:
        while not over.is_set():
            for name, pid in pids.items():
                with suppress(OSError):  # it has ended
                    peaks[name] = max(peaks[name], _size(pid))
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _size(pid: int) -> int:
    """Bytes: anonymous memory, and sealed memory held or mapped, by inode."""
    sealed: dict[int, int] = {}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            if os.readlink(entry.path).startswith("/memfd:garfield"):
                found = os.stat(entry.path)
                sealed[found.st_ino] = found.st_blocks * 512
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:garfield" in line:
            span, _, _, _, inode, *_ = line.split()
            low, high = (int(end, 16) for end in span.split("-"))
            sealed[int(inode)] = max(sealed.get(int(inode), 0), high - low)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 + sum(sealed.values())
    return 0
