"""How long does one vector take from one process to another, beside gloo?

Vectors as long as CifarNet's, ResNet-50's and VGG-19's gradients, between two processes
of this host. The clock runs from the moment the sender is told to publish until the
receiver holds all of it, checked to be finite (gloo checks nothing); every kind has its
turn in every round, and its fastest counts. Rules on vectors of VGG-19's length are
``python -m benchmarks aggregation --n 7 --d 139611210 --no-byzfl``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from garfield.launch.links import Link, LinkKind, link
from garfield.models import MODELS
from garfield.nodes.outbox import Outbox
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Key, first
from garfield.transport.identity import PeerAddress

QUESTION = "How long does a vector take from process to process, beside gloo?"
KINDS: tuple[LinkKind, ...] = ("memory", "tcp", "tls")
SIZES = ("cifarnet", "resnet50", "vgg19")
SENDER, RECEIVER = "worker-0", "server-0"
LONGEST_S = 120.0


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--sizes", nargs="+", choices=[*MODELS], default=list(SIZES))
    group.add_argument("--pulls", type=int, default=10, help="of each kind (10)")


def run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """One table; the seconds of all transfers are returned."""
    pulls = 3 if options.quick else options.pulls
    table = Table("vector", "link", title="from process to process", box=box.SIMPLE_HEAD)
    for heading in ("MB", "ms", "GB/s", "times as fast as gloo"):
        table.add_column(heading, justify="right")
    results = []
    for model in options.sizes:
        length = MODELS[model].parameters or 0
        with console.status(f"{model}: {4 * length / 1e6:.0f} MB"):
            took = _take_turns(length, pulls)
        gloo = min(took["gloo"])
        for kind, seconds in took.items():
            best, size = min(seconds), 4 * length
            table.add_row(
                model, kind, f"{size / 1e6:.0f}", f"{1e3 * best:.1f}", f"{size / best / 1e9:.2f}",
                f"{gloo / best:.2f}",
            )  # fmt: skip
            results.append({"model": model, "link": kind, "bytes": size, "times_s": seconds})
    console.print(table)
    return results


def _take_turns(length: int, pulls: int) -> dict[str, list[float]]:
    """Seconds of every transfer, by kind; the first of each is not counted."""
    took: dict[str, list[float]] = {}
    with ExitStack() as stack:
        movers = {kind: stack.enter_context(_ours(kind, length)) for kind in KINDS}
        movers["gloo"] = stack.enter_context(_gloo(length))
        order, kinds = random.Random(0), list(movers)
        for number in range(pulls + 1):
            order.shuffle(kinds)
            for kind in kinds:
                began = time.perf_counter()
                movers[kind](number)
                took.setdefault(kind, []).append(time.perf_counter() - began)
    return {kind: took[kind][1:] for kind in movers}


@contextmanager
def _ours(kind: LinkKind, length: int) -> Iterator[Callable[[int], None]]:
    with link(kind, [SENDER, RECEIVER]) as way, _process(_publish, way, length) as pipe:
        peers = {SENDER: PeerAddress(pipe.recv(), "worker")}
        transport = way.transport(RECEIVER, peers, grpc_transport)
        transport.serve(Outbox())

        def move(step: int) -> None:
            pipe.send(step)
            key = Key("proposal", step)
            found = transport.pull(
                [SENDER], key, length=length, until=first(1), timeout_s=LONGEST_S
            )
            assert found.names, found.silent

        try:
            pipe.send(transport.address)
            yield move
        finally:
            transport.close()


def _publish(pipe: Connection, way: Link, length: int) -> None:
    """The sender: whenever told, it publishes its vector under the next step."""
    peers: dict[str, PeerAddress] = {}
    transport, outbox = way.transport(SENDER, peers, grpc_transport), Outbox()
    outbox.shared_copy = transport.shared_copy
    transport.serve(outbox)
    pipe.send(transport.address)
    peers[RECEIVER] = PeerAddress(pipe.recv(), "server")
    vector = _vector(length)
    while True:
        outbox.publish(Key("proposal", pipe.recv()), vector, copy=False)


@contextmanager
def _gloo(length: int) -> Iterator[Callable[[int], None]]:
    import torch
    from torch import distributed

    with TemporaryDirectory() as directory, _process(_send, directory, length) as pipe:
        store = distributed.FileStore(str(Path(directory) / "store"), 2)
        distributed.init_process_group("gloo", store=store, rank=0, world_size=2)
        out = torch.empty(length)

        def move(step: int) -> None:
            pipe.send(step)
            distributed.recv(out, 1)

        try:
            yield move
        finally:
            distributed.destroy_process_group()


def _send(pipe: Connection, directory: str, length: int) -> None:
    import torch
    from torch import distributed

    store = distributed.FileStore(str(Path(directory) / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=1, world_size=2)
    vector = torch.from_numpy(_vector(length))
    while True:
        pipe.recv()
        distributed.send(vector, 0)


@contextmanager
def _process(target: Any, where: Any, length: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, where, length), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _vector(length: int) -> Any:
    return np.random.default_rng(0).standard_normal(length, dtype=np.float32)
