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

What a pull meets is settled when it begins, and again every so often: no clock and no
chance of its own, so a simulated run with faults is the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Literal

from garfield.core.silence import Reason, Silence
from garfield.transport.collector import ReplyCollector, copied
from garfield.transport.contract import (
    Answer,
    Answerer,
    Key,
    PullArguments,
    Ready,
    Replies,
    Transport,
    Until,
    WrappedTransport,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANYBODY = "*"
_NOBODY = "(nobody)"  # asked in place of those who cannot be reached: a pull then lasts its time
_STANDSTILL_BPS = 1.0
_SAYS_LITTLE = (Reason.NOT_NEEDED, Reason.NO_ANSWER)
"""Of a stage of a pull: an earlier one may have told more."""
_REFUSED = Silence(Reason.UNREACHABLE, "connection refused")


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


class FaultyTransport(WrappedTransport):
    """One node's transport, behind links that fail."""

    def __init__(self, inner: Transport, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    def serve(self, answerer: Answerer) -> None:
        self.inner.serve(_CutAnswers(answerer, self.name, self._faults))

    def pull(self, peers: Sequence[str], key: Key, **how: Unpack[PullArguments]) -> Replies:
        if not key.is_newest:
            self._faults.reached(key.step)
        struck = partial(self._faults.between, self.name)
        if not any(_stops(struck(peer)) for peer in peers):
            return super().pull(peers, key, **how)
        return _FaultyPull(self.inner, key, **how).run(sorted(set(peers)), struck)


def _stops(fault: LinkFault | None) -> bool:
    """Whether nothing comes through, or not yet; what is cut off is for the answerer to see to."""
    return fault is not None and fault.kind != "cut"


@dataclass
class _FaultyPull:
    """One pull in stages: a peer with a delay is asked only when that is over.

    In each of them faults are looked at anew: some last as long as the run is at some step, and a
    pull may take longer.
    """

    transport: Transport
    key: Key
    length: int
    until: Until
    timeout_s: float
    stall_s: float | None = None

    def run(self, peers: Sequence[str], struck: Callable[[str], LinkFault | None]) -> Replies:
        collector = ReplyCollector(peers, self.key, self.length, self.until)
        silent: dict[str, Silence] = {}
        late: frozenset[str] = frozenset()
        begin = 0.0
        while begin < self.timeout_s and not collector.done:
            starts = {peer: self._asked_at(struck(peer)) for peer in collector.open}
            reached = [start for start in starts.values() if start > begin]
            end = min([*reached, begin + self._pause_s, self.timeout_s])
            asked = [peer for peer, start in starts.items() if start <= begin]
            replies = self._ask(asked, collector, end - begin)
            collector.absorb(copied(replies))
            silent |= {
                peer: why for peer, why in replies.silent.items() if why.reason not in _SAYS_LITTLE
            }
            late, begin = late | replies.late, end
        refused = {
            peer: _REFUSED
            for peer in collector.open
            if (fault := struck(peer)) is not None and fault.kind == "refuse"
        }
        return collector.replies(self.timeout_s, {**refused, **silent}, late=late)

    def _ask(self, asked: Sequence[str], collector: ReplyCollector, timeout_s: float) -> Replies:
        """Those who can be reached by now; the pull lasts its time if others cannot yet."""
        waits = len(asked) < len(collector.open)
        return self.transport.pull(
            [*asked, _NOBODY] if waits else asked, self.key, length=self.length,
            until=collector.counted_in(self.until), timeout_s=timeout_s,
            stall_s=self._pause_s,
        )  # fmt: skip

    @property
    def _pause_s(self) -> float:
        return self.timeout_s / 2 if self.stall_s is None else self.stall_s

    def _asked_at(self, fault: LinkFault | None) -> float:
        """When the peer behind that fault is reached; at the deadline if never."""
        if fault is None or not _stops(fault):
            return 0.0
        return min(fault.delay_s, self.timeout_s) if fault.kind == "delay" else self.timeout_s


@dataclass(frozen=True)
class _CutAnswers:
    """A node's answers, which break off on their way to some."""

    answerer: Answerer
    name: str
    faults: Faults

    def answer(self, asker: str, key: Key) -> Answer:
        answer = self.answerer.answer(asker, key)
        fault = self.faults.between(asker, self.name)
        if isinstance(answer, Ready) and fault is not None and fault.kind == "cut":
            return replace(answer, pace_bps=_STANDSTILL_BPS)
        return answer

    def watch(self, wake: Callable[[], None]) -> None:
        self.answerer.watch(wake)
