"""What is written down of a run while it goes: every publication, every join, every failure.

Joins are seen where they happen, in `Rule._run`, with the names of those whose rows they are made
of: a row is known by its memory, which the last round of the node has brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from garfield.apps.liubei import ScatteredWorker
from garfield.gars import Aggregator, Rule
from garfield.nodes.node import Node
from garfield.nodes.outbox import Outbox
from garfield.nodes.patience import Patience
from garfield.nodes.quorum import Quorum
from garfield.transport.contract import Key, Payload, Replies
from garfield.transport.simulated import SimulatedTransport

OWN = "itself"
"""The sender of a row that no round has brought: what the node has made itself."""


@dataclass(frozen=True)
class Join:
    """Rows that became one."""

    node: str
    key: Key
    """What was asked for."""
    rule: Rule
    names: tuple[str, ...]
    rows: tuple[Payload, ...]
    told: int
    f: int
    proven: frozenset[str]
    """Who had proved to be faulty in that round."""
    result: Payload
    claims: dict[str, int]


@dataclass(frozen=True)
class Published:
    """What a node has published."""

    node: str
    key: Key
    vector: Payload
    at_s: float


@dataclass
class Record:
    """All of it, in order."""

    joins: list[Join] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    """When each honest server was done."""
    charges: list[tuple[str, str, int]] = field(default_factory=list)
    """Who charged whom, at which step."""
    blamed: list[tuple[int, str]] = field(default_factory=list)
    """Steps, and whom DRACO's code took for a liar then."""
    followed: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    """Workers that followed one server alone at a step, and the servers they chose among."""
    waited_s: dict[str, float] = field(default_factory=dict)
    """How long each honest node has waited in rounds that could have gone on."""
    waited_for: dict[str, set[str]] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    now_s: float = 0.0
    stands_still: str = ""
    """How it was seen that the run would go on for ever while no time passes."""
    spoke: int = 0


class RecordingOutbox(Outbox):
    """Notes what an honest node publishes."""

    def __init__(self, name: str, note: Callable[[str, Key, Payload], None]) -> None:
        super().__init__()
        self._name, self._note = name, note

    def publish(self, key: Key, vector: Payload, *, copy: bool = True) -> None:
        super().publish(key, vector, copy=copy)
        own = self.own(key)
        assert own is not None
        self._note(self._name, key, own)


@contextmanager
def recorded(
    record: Record, who: Callable[[], str | None], pulls: Callable[[str], None]
) -> Iterator[None]:
    """Have noted, while this lasts, what honest nodes join, and for whom they wait.

    `who` says which honest node's turn it is; None for a liar's. `pulls` is told who asks for
    anything.
    """
    asked: dict[str, tuple[Node, Key, Replies]] = {}
    ran: list[tuple[int, Any, Payload]] = []
    waits: dict[str, float] = {}  # in the present round
    ask, run, aggregate, missed, answered, pull = (
        Node._ask, Rule._run, Aggregator.aggregate, Patience.missed, Patience.answered,
        SimulatedTransport.pull,
    )  # fmt: skip
    scattered = ScatteredWorker._scattered

    def noted_scattered(self: ScatteredWorker) -> Payload | None:
        if who() is not None:
            record.followed.append((self.name, self.step, tuple(sorted(self._order()))))
        return scattered(self)

    def noted_pull(self: SimulatedTransport, *asked: Any, **given: Any) -> Replies:
        pulls(self.name)
        return pull(self, *asked, **given)

    def noted_ask(
        self: Node, peers: Any, key: Key, length: int, quorum: Quorum, *timeout_s: Any
    ) -> Replies:
        record.rounds[self.name] = record.rounds.get(self.name, 0) + 1
        waits.pop(self.name, None)
        replies = ask(self, peers, key, length, quorum, *timeout_s)
        asked[self.name] = self, key, replies
        return replies

    def noted_run(self: Rule, rows: Any, kind: Any, shown: Any, f: int) -> Any:
        choice = run(self, rows, kind, shown, f)
        ran.append((f, shown.places, np.array(choice.vector, dtype=np.float64)))
        return choice

    def noted_aggregate(self: Aggregator, rows: Any, **given: Any) -> Any:
        name = who()
        found = aggregate(self, rows, **given)
        if name is not None:
            record.joins.append(_join(*asked[name], self, rows, *ran[-1]))
        ran.clear()
        return found

    def noted_missed(self: Patience, peer: str, waited_s: float, *, in_full: bool) -> None:
        missed(self, peer, waited_s, in_full=in_full)
        note(peer, waited_s)
        name = who()
        if name is not None and in_full:
            record.charges.append((name, peer, asked[name][1].step if name in asked else 0))

    def noted_answered(self: Patience, peer: str, waited_s: float = 0.0) -> None:
        answered(self, peer, waited_s)
        note(peer, waited_s)

    def note(peer: str, waited_s: float) -> None:
        name = who()
        if name is not None and waited_s > 0:
            record.waited_for.setdefault(name, set()).add(peer)
            before = waits.get(name, 0.0)
            waits[name] = max(before, waited_s)
            record.waited_s[name] = record.waited_s.get(name, 0.0) + waits[name] - before

    with (
        patch.object(SimulatedTransport, "pull", noted_pull),
        patch.object(ScatteredWorker, "_scattered", noted_scattered),
        patch.object(Node, "_ask", noted_ask),
        patch.object(Rule, "_run", noted_run),
        patch.object(Aggregator, "aggregate", noted_aggregate),
        patch.object(Patience, "missed", noted_missed),
        patch.object(Patience, "answered", noted_answered),
    ):
        yield


def _join(
    node: Node, key: Key, replies: Replies, by: Aggregator, rows: Any, told: int, places: Any,
    result: Payload,
) -> Join:  # fmt: skip
    senders = {_place(row): name for name, row in zip(replies.names, replies.rows, strict=True)}
    shown = [rows[i] for i in places]
    by_memory = [senders.get(_place(row), OWN) for row in shown]
    by_order = _by_order(replies, rows, places)
    names = by_memory if by_order is None else by_order
    proven = frozenset(name for name, why in replies.silent.items() if why.reason.proof)
    copies = tuple(np.array(row, dtype=np.float64) for row in shown)
    claims = {name: replies.steps[name] for name in names if name in replies.steps}
    return Join(node.name, key, by.rule, tuple(names), copies, told, by.f, proven, result, claims)


def _by_order(replies: Replies, rows: Any, places: Any) -> list[str] | None:
    """Who sent the rows, by their place among all who answered; None if they are of no round."""
    came = dict(zip(replies.names, replies.rows, strict=True))
    shown = [rows[i] for i in places]
    of_round = [row for row in shown if any(_place(row) == _place(each) for each in came.values())]
    if len(of_round) < len(shown):
        return None
    names = list(replies.names)[: len(shown)]
    same = all(_place(came[name]) == _place(row) for name, row in zip(names, shown, strict=True))
    return names if same else None


def _place(row: Payload) -> int:
    return int(row.__array_interface__["data"][0])
