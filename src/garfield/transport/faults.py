"""Faults on purpose: wraps any transport, and breaks links by place and step.

    faults = Faults(cut_off("worker-2", range(3, 7)))
    node = Worker(..., transport=faults.around(transport))

A fault lies on the way from a peer to the node that asks it; a link that is
down is two of them, one each way. Its steps are those of the run: the furthest
that any node behind the same `Faults` has asked for. So a node that is cut off
is back once the others have got past the fault; if nobody can go on, it stays.

    drop      nothing comes, and the asker waits for its deadline
    refuse    the same, and it is told that the connection was refused
    delay     what comes, comes `delay_s` later
    cut       the answer begins to arrive, and breaks off

What a pull meets is settled when it begins: no clock and no chance of its own,
so a simulated run with faults is the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any, Literal

from garfield.core.silence import NOT_NEEDED, Reason, Silence, no_answer
from garfield.core.silence import gone as gone_to
from garfield.transport.contract import (
    Answer,
    Key,
    Payload,
    Ready,
    Replies,
    Source,
    Transport,
    Until,
)

ANYBODY = "*"
_NOBODY = "(nobody)"  # asked in place of those who cannot be reached: a pull then lasts its time
_STANDSTILL_BPS = 1.0


@dataclass(frozen=True)
class LinkFault:
    """What becomes of the answers of one node to another, while the run is at some steps."""

    kind: Literal["drop", "refuse", "delay", "cut"]
    asker: str
    """Who asks; "*" for anybody."""
    peer: str
    """Whose answers are meant; "*" for anybody's but the asker's own."""
    steps: range
    delay_s: float = 0.0

    def strikes(self, asker: str, peer: str, step: int) -> bool:
        between = self.asker in (asker, ANYBODY) and self.peer in (peer, ANYBODY)
        return between and asker != peer and step in self.steps


def cut_off(name: str, steps: range) -> list[LinkFault]:
    """Nobody reaches that node, and it reaches nobody."""
    return [LinkFault("drop", ANYBODY, name, steps), LinkFault("drop", name, ANYBODY, steps)]


def partition(*groups: Iterable[str], steps: range) -> list[LinkFault]:
    """Each of the groups keeps to itself."""
    return [
        LinkFault("drop", asker, peer, steps)
        for ours, theirs in permutations([tuple(group) for group in groups], 2)
        for asker in ours
        for peer in theirs
    ]


class Faults:
    """What goes wrong in one run, and how far that run has come. The first that fits strikes."""

    def __init__(self, schedule: Iterable[LinkFault] = ()) -> None:
        self._schedule = tuple(schedule)
        self._step = 0
        self._lock = threading.Lock()

    def around(self, transport: Transport) -> FaultyTransport:
        """A node's transport with these faults."""
        return FaultyTransport(transport, self)

    def reached(self, step: int) -> None:
        """A node is at that step."""
        with self._lock:
            self._step = max(self._step, step)

    def between(self, asker: str, peer: str) -> LinkFault | None:
        """What lies on the way of that peer's answers now."""
        step = self._step
        return next((fault for fault in self._schedule if fault.strikes(asker, peer, step)), None)


class FaultyTransport:
    """One node's transport, behind links that fail."""

    def __init__(self, transport: Transport, faults: Faults) -> None:
        self.name = transport.name
        self._transport = transport
        self._faults = faults

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._transport, attribute)  # its address, its count of bytes

    def serve(self, source: Source) -> None:
        self._transport.serve(_Cutting(source, self.name, self._faults))

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        self._faults.reached(key.step)
        found = {peer: self._faults.between(self.name, peer) for peer in peers}
        struck = {peer: fault for peer, fault in found.items() if fault and fault.kind != "cut"}
        if not struck:
            return self._transport.pull(peers, key, length=length, until=until, timeout_s=timeout_s)
        pull = _FaultyPull(self._transport, key, length, until, timeout_s)
        return pull.run(sorted(found), struck)

    def close(self) -> None:
        self._transport.close()


@dataclass
class _FaultyPull:
    """One pull in stages: a peer with a delay is asked only when that is over."""

    transport: Transport
    key: Key
    length: int
    until: Until
    timeout_s: float

    def run(self, peers: Sequence[str], struck: dict[str, LinkFault]) -> Replies:
        starts = {peer: self._asked_at(struck.get(peer)) for peer in peers}
        late = {start for start in starts.values() if 0 < start < self.timeout_s}
        rows: dict[str, Payload] = {}
        gone: dict[str, int] = {}
        silent: dict[str, Silence] = {}
        for begin, end in pairwise([0.0, *sorted(late), self.timeout_s]):
            open_ = [peer for peer in peers if peer not in rows and peer not in gone]
            asked = [peer for peer in open_ if starts[peer] <= begin]
            replies = self._ask(asked, rows, end - begin, waits=len(asked) < len(open_))
            rows |= _copies(replies)
            gone |= replies.gone
            silent = {peer: why for peer, why in replies.silent.items() if peer != _NOBODY}
            if self.until(rows):
                break
        silent |= {peer: gone_to(step) for peer, step in gone.items()}
        for peer in peers:
            if peer not in rows and peer not in silent:
                silent[peer] = self._silence(struck[peer], enough=self.until(rows))
        names = tuple(sorted(rows))
        return Replies(names, tuple(rows[name] for name in names), silent, gone)

    def _ask(
        self, asked: Sequence[str], rows: dict[str, Payload], timeout_s: float, *, waits: bool
    ) -> Replies:
        """Those who can be reached by now; the pull lasts its time if others cannot yet."""
        return self.transport.pull(
            [*asked, _NOBODY] if waits else asked, self.key, length=self.length,
            until=lambda names: self.until({*rows, *names}), timeout_s=timeout_s,
        )  # fmt: skip

    def _asked_at(self, fault: LinkFault | None) -> float:
        """When the peer behind that fault is reached; at the deadline if never."""
        if fault is None:
            return 0.0
        return min(fault.delay_s, self.timeout_s) if fault.kind == "delay" else self.timeout_s

    def _silence(self, fault: LinkFault, *, enough: bool) -> Silence:
        if fault.kind == "refuse":
            return Silence(Reason.UNREACHABLE, "connection refused")
        return NOT_NEEDED if enough else no_answer(self.timeout_s)


def _copies(replies: Replies) -> dict[str, Payload]:
    """Rows that the next stage, a pull of the same kind, cannot write over."""
    rows = {name: row.copy() for name, row in zip(replies.names, replies.rows, strict=True)}
    for row in rows.values():
        row.flags.writeable = False
    return rows


@dataclass(frozen=True)
class _Cutting:
    """A source whose answers break off on their way to some."""

    source: Source
    name: str
    faults: Faults

    def answer(self, asker: str, key: Key) -> Answer:
        answer = self.source.answer(asker, key)
        fault = self.faults.between(asker, self.name)
        if isinstance(answer, Ready) and fault is not None and fault.kind == "cut":
            return replace(answer, pace_bps=_STANDSTILL_BPS)
        return answer

    def watch(self, wake: Any) -> None:
        self.source.watch(wake)
