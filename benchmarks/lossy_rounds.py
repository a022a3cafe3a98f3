"""Rounds of pulls by gRPC and by UDP in turn, between processes, over whatever links there are.

Run by `benchmarks/lossy.py`, with a host address, inside a network namespace of its own. Prints
a line of JSON. Every worker is a process with two transports, one of each kind, that answer any
key with the same vector; the server's process asks all of them, round after round.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from typing import Any

import numpy as np

from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Key, Ready, Replies, all_of
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.identity import PeerAddress

LONGEST_S = 60.0  # for one round


class Same:
    """An outbox that has one vector for every key."""

    def __init__(self, length: int, name: str) -> None:
        draw = np.random.default_rng(len(name)).standard_normal(length)
        self._ready = Ready(draw.astype(np.float32))

    def answer(self, asker: str, key: Key) -> Ready:
        return self._ready

    def watch(self, wake: Any) -> None:
        """Nothing changes."""


def transports(
    name: str, books: dict[str, dict[str, PeerAddress]], job: dict[str, Any]
) -> dict[str, Any]:
    """One of each kind, serving."""
    listen = f"{job['host']}:0"
    workers = frozenset(f"worker-{i}" for i in range(job["workers"]))
    links = LossyLinks(workers, frozenset(["server"]), fill="random", loss=job["injected"])
    both = {
        "grpc": grpc_transport(name, books["grpc"], listen=listen, insecure_ok=True),
        "udp": grpc_transport(name, books["udp"], links=links, listen=listen, insecure_ok=True),
    }
    for transport in both.values():
        transport.serve(Same(job["length"], name))
    return both


def worker(name: str, pipe: Any, job: dict[str, Any]) -> None:
    """Serve until told to end."""
    books: dict[str, dict[str, PeerAddress]] = {"grpc": {}, "udp": {}}
    both = transports(name, books, job)
    pipe.send({kind: transport.address for kind, transport in both.items()})
    for kind, address in pipe.recv().items():
        books[kind]["server"] = PeerAddress(address)
    pipe.recv()
    for transport in both.values():
        transport.close()


def rounds(both: dict[str, Any], names: list[str], job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every round by each kind, and the share of values that came."""
    took: dict[str, list[float]] = {kind: [] for kind in both}
    came: dict[str, list[float]] = {kind: [] for kind in both}
    deadline, step = time.monotonic() + job["seconds"], 0
    while step < 3 or time.monotonic() < deadline:
        for kind, transport in both.items():
            began = time.perf_counter()
            replies = transport.pull(
                names, Key("gradient", step), length=job["length"], until=all_of(names),
                timeout_s=LONGEST_S,
            )  # fmt: skip
            if step > 0:  # the first connects
                took[kind].append(time.perf_counter() - began)
                came[kind].append(_came(replies, len(names)))
        step += 1
        if step >= 2 and time.monotonic() > deadline + LONGEST_S:
            break
    return {"took": took, "came": {kind: float(np.mean(some)) for kind, some in came.items()}}


def _came(replies: Replies, asked: int) -> float:
    lost = sum(float(holes.missing.mean()) for holes in replies.holes.values())
    return (len(replies.names) - lost) / asked


def main(job: dict[str, Any]) -> None:
    """Start the workers, run the rounds, end the workers."""
    context = multiprocessing.get_context("spawn")
    names = [f"worker-{i}" for i in range(job["workers"])]
    pipes, children = [], []
    for name in names:
        ours, theirs = context.Pipe()
        children.append(context.Process(target=worker, args=(name, theirs, job), daemon=True))
        children[-1].start()
        pipes.append(ours)
    books: dict[str, dict[str, PeerAddress]] = {"grpc": {}, "udp": {}}
    both = transports("server", books, job)
    for name, pipe in zip(names, pipes, strict=True):
        for kind, address in pipe.recv().items():
            books[kind][name] = PeerAddress(address)
        pipe.send({kind: transport.address for kind, transport in both.items()})
    try:
        print(json.dumps(rounds(both, names, job)))
    finally:
        for transport in both.values():
            transport.close()
        for pipe, child in zip(pipes, children, strict=True):
            pipe.send("end")
            child.join(10)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
