"""Run a training script's main function as n peers on this machine, some of which may lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from garfield.core.errors import ConfigError, UnknownName
from garfield.launch.local import run_locally
from garfield.nodes.peer import Peer
from garfield.nodes.plan import Plan, parse_plan
from garfield.transport.contract import Transport


def run_as_peers(
    main: Callable[[Peer], Any], n: int, *, liars: Mapping[int, str] | None = None
) -> None:
    """Call main(peer) in n processes; `liars` are numbers of peers with what they do.

    ``liars={6: "reverse"}`` makes the seventh peer tell the others −100 times its gradients
    and models. What the first peer prints is shown, so it should not lie.
    """
    liars = dict(liars or {})
    for rank in liars:
        _plan(rank, liars, n)  # refused before anything starts
    names = _names(n)
    run_locally(_Main(main, tuple(names), liars), names)


def _names(n: int) -> list[str]:
    return [f"peer-{rank:0{len(str(n - 1))}}" for rank in range(n)]  # sorted, as rows are


def _plan(rank: int, liars: Mapping[int, str], n: int) -> Plan | None:
    if rank not in liars:
        return None
    if not 0 < rank < n:
        raise ConfigError(f"A liar must be one of peers 1..{n - 1}, got {rank}.")
    text, order = liars[rank], sorted(liars).index(rank)
    plan = parse_plan(text, Plan(n=n, f=len(liars), rank=order))
    for name in sorted(plan.timing.askers.difference(_names(n))):
        raise UnknownName("one of the peers", name, _names(n))
    if plan.timing.redrawn:
        raise ConfigError(f"{text}: here the liars are named, and cannot be redrawn each step.")
    if plan.knows_all:
        raise ConfigError(
            f"{text} needs to see all honest gradients, which no process does. Take an attack "
            "that knows its own, such as reverse."
        )
    return plan


@dataclass(frozen=True)
class _Main:
    """What each process runs; sent to it, so it must be importable."""

    main: Callable[[Peer], Any]
    names: tuple[str, ...]
    liars: Mapping[int, str]

    def __call__(self, name: str, transport: Transport) -> None:
        rank = self.names.index(name)
        if rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
        plan = _plan(rank, self.liars, len(self.names))
        self.main(Peer(transport, self.names, plan=plan))
