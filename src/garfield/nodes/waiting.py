"""Whom a node is waiting for, asked by another that waits for it in vain.

Silence spreads: a worker that a lying server keeps waiting is silent to the honest servers too. So
who gives up asks the silent whom they wait for themselves, and says it. It is only what they say:
nothing is decided by it.

It travels as any vector does, a 1 for each name that is waited for, of a list which both sides
know: the servers (round 0), or the workers (round 1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from garfield.transport.contract import Key, Payload, Transport, VectorKind, all_of, declare_kind

WAITING = declare_kind(VectorKind("waiting"))
SERVERS, WORKERS = 0, 1
ASKED = 0.1
"""How much longer a node that gives up still waits for this."""


def told(names: Sequence[str], waited_for: Collection[str]) -> Payload:
    """What a node says: which of the names it waits for."""
    return np.array([name in waited_for for name in names], np.float32)


def heard(names: Sequence[str], said: Payload) -> list[str]:
    """Which of the names somebody says to wait for."""
    return [name for name, flag in zip(names, said, strict=True) if flag > 0]


def ask(
    transport: Transport,
    silent: Collection[str],
    lists: Mapping[int, Sequence[str]],
    timeout_s: float,
) -> dict[str, list[str]]:
    """Whom each of the silent says to wait for; of those that say nothing, nothing."""
    found: dict[str, list[str]] = {}
    for which, names in lists.items():
        if not names or not silent:
            continue
        replies = transport.pull(
            [*silent], Key(WAITING.name, 0, which), length=len(names), until=all_of(silent),
            timeout_s=timeout_s,
        )  # fmt: skip
        for peer, said in zip(replies.names, replies.rows, strict=True):
            found.setdefault(peer, []).extend(heard(names, said))
    return {peer: names for peer, names in found.items() if names}
