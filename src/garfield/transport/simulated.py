"""Many nodes in one process, on a virtual clock: the same nodes, no threads, the same bits.

Every node is a greenlet that runs until it must wait in `pull`; the scheduler
then runs the next one that has something to do, in the order in which they
became ready. When nobody can go on, the clock jumps to the next deadline. Two
runs from the same seed take the same turns.

Long work that shares nothing (a gradient) may be done on other cores meanwhile:
whoever asked for it goes on when nobody else can, in an order that does not depend on
when the work is done: turns and results are the same however many threads there are.

How long an answer takes on its way is nothing, or what `delay_s` says of it: a network
that is on the liars' side, for one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TypeAlias, TypeVar
from weakref import ReferenceType, ref
from zlib import crc32

from greenlet import getcurrent, greenlet

from garfield.core.errors import Deadlock, RunError
from garfield.core.silence import Reason, Silence
from garfield.kernels.finite import all_finite
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Answer,
    Answerer,
    Gone,
    Key,
    Payload,
    Ready,
    Refused,
    Replies,
    Until,
)

T = TypeVar("T")

DelayS: TypeAlias = Callable[[str, str, Key], float]
"""How many seconds the answer to an asker takes from a peer, under a key."""

_SHORTEST_S = 1e-6
"""A wait: less might be lost in rounding, and the clock stand still."""

_TOO_SLOW = Silence(Reason.TOO_SLOW, "too slow")
_REFUSED = Silence(Reason.REFUSED, "that is not for everybody")


class Simulation:
    """The scheduler: nodes by name, whose turn it is, and what time it is."""

    def __init__(self, threads: int = 1, delay_s: DelayS = lambda asker, peer, key: 0.0) -> None:
        """`threads` is how much work may be done at once; turns are taken one by one always."""
        self.threads = threads
        self.delay_s = delay_s
        self.now_s = 0.0
        self._serving: dict[str, SimulatedTransport] = {}
        self._ready: deque[greenlet] = deque()
        self._working: deque[greenlet] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._timers: list[tuple[float, int, greenlet]] = []  # deadline, order of entry, who
        self._entered = 0
        self._chance = Random(0)
        self._waiting: dict[str, dict[greenlet, None]] = defaultdict(dict)  # on whom: who
        self._changed: dict[greenlet, dict[str, None]] = {}  # waiters: whose answers changed
        self._failure: BaseException | None = None
        self._hub: greenlet | None = None
        self._verdicts: dict[int, tuple[ReferenceType[Payload], bool]] = {}

    def transport(self, name: str) -> SimulatedTransport:
        """The transport of one node."""
        return SimulatedTransport(self, name)

    def spawn(self, program: Callable[[], object]) -> None:
        """Add a node's program; it starts with `run`."""

        def guarded() -> None:
            try:
                program()
            except BaseException as failure:
                self._failure = self._failure or failure

        self._ready.append(greenlet(guarded))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until every program has ended, or `until` says so; the first failure is raised."""
        self._hub = getcurrent()
        pool = self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        try:
            while not until() and (self._ready or self._working or self._advance()):
                turn = self._ready.popleft() if self._ready else self._done_next()
                turn.switch()
                if self._failure is not None:
                    raise self._failure
        finally:
            self._hub = None
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def work(self, work: Callable[[], T]) -> T:
        """Do long work, and return its result; the others have their turns meanwhile."""
        me = getcurrent()
        if self._hub is None or me is self._hub:
            return work()
        finish = work if self._pool is None else self._pool.submit(work).result
        self._working.append(me)
        self._hub.switch()
        return finish()

    def _done_next(self) -> greenlet:
        """Who is done first is chance, or a quorum would leave out the same ones for ever: by
        their names, or because whoever was late once is late again."""
        self._working.rotate(self._chance.randrange(len(self._working)))
        return self._working.popleft()

    def sleep(self, seconds: float) -> None:
        """Give the turn away for so long, by the virtual clock."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:  # waits that are over may still wake it
            self._wait([], until_s)

    def is_finite(self, payload: Payload) -> bool:
        """Every number of it; looked at once, however many ask for the same vector."""
        place = id(payload)
        known = self._verdicts.get(place)
        if known is not None and known[0]() is payload:
            return known[1]
        verdict = all_finite(payload)
        if not payload.flags.writeable:  # else it may change
            gone = ref(payload, lambda _: self._verdicts.pop(place, None))
            self._verdicts[place] = gone, verdict
        return verdict

    def work_in_turns(self) -> None:
        """Do work in its asker's turn from now on, one after the other."""
        self._pool = None

    def _advance(self) -> bool:
        """Jump to the next deadline that somebody still waits for."""
        while self._timers:
            deadline, _, who = heappop(self._timers)
            if who in self._changed:  # it is still waiting
                self.now_s = max(self.now_s, deadline)
                self._ready.append(who)
                return True
        return False

    def _published(self, name: str) -> None:
        for who in self._waiting[name]:
            if not self._changed[who]:
                self._ready.append(who)
            self._changed[who][name] = None

    def _wait(self, on: Sequence[str], deadline_s: float) -> list[str]:
        """Give the turn away until one of `on` may answer, or the deadline; who may answer."""
        me = getcurrent()
        if self._hub is None or me is self._hub:
            raise Deadlock("A simulated node can wait only inside Simulation.run().")
        self._changed[me] = {}
        for name in on:
            self._waiting[name][me] = None
        self._entered += 1
        heappush(self._timers, (deadline_s, self._entered, me))
        self._hub.switch()
        for name in on:
            self._waiting[name].pop(me, None)
        return list(self._changed.pop(me))


@dataclass(frozen=True)
class _OnItsWay:
    """An answer that a peer has given, and when it arrives."""

    due_s: float
    answer: Ready


@dataclass(frozen=True)
class _LeftOpen:
    """A request that a pull ended without an answer to."""

    key: Key
    deadline_s: float
    on_its_way: _OnItsWay | None


class SimulatedTransport:
    """One node's way to the others. Nothing is copied: payloads are immutable by contract."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.bytes_received = 0
        self.bytes_sent = 0
        self._answerer: Answerer | None = None
        self._closed = False
        self._left_open: dict[tuple[str, str], _LeftOpen] = {}  # by peer and kind
        self._came_late: dict[tuple[str, str], _LeftOpen] = {}  # until their kind is pulled again

    @property
    def address(self) -> str:
        return self.name  # by which all nodes of a simulation find each other

    def shared_copy(self, vector: Payload) -> Payload | None:
        return None  # nothing is copied anyway

    def serve(self, answerer: Answerer) -> None:
        if self._answerer is not None:
            raise RunError(f"{self.name} is serving already. One transport has one outbox.")
        self._answerer = answerer
        self.simulation._serving[self.name] = self
        answerer.watch(lambda: self.simulation._published(self.name))
        self.simulation._published(self.name)

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float,
        stall_s: float | None = None,
    ) -> Replies:  # fmt: skip
        pull = _SimulatedPull(self, key, self.simulation.now_s + timeout_s)
        pull.on_its_way = self._still_coming(peers, key)
        late = self._late()
        pull.collector = ReplyCollector(
            peers, key, length, until, is_finite=self.simulation.is_finite
        )
        pull.run()
        late |= self._late()
        for peer in pull.collector.open:
            left = _LeftOpen(key, pull.deadline_s, pull.on_its_way.get(peer))
            self._left_open.setdefault((peer, key.kind), left)  # one at a time, until it comes
        return pull.collector.replies(timeout_s, pull.slow, late=late)

    def _still_coming(self, peers: Sequence[str], key: Key) -> dict[str, _OnItsWay]:
        """What has come, or is on its way, for a pull of the same key that ended without it.

        What was left open for a later step is given up: an earlier one is asked for now.
        """
        found = {}
        for peer in peers:
            place = peer, key.kind
            for requests in (self._came_late, self._left_open):
                left = requests.get(place)
                if left is not None and left.key == key and left.on_its_way is not None:
                    found[peer] = left.on_its_way
                    del requests[place]
            left = self._left_open.get(place)
            if left is not None and key.least_step < left.key.least_step:
                del self._left_open[place]
            self._came_late.pop(place, None)  # nobody asks for it any more
        return found

    def _late(self) -> frozenset[str]:
        """Who has answered since what was left open."""
        now_s, came = self.simulation.now_s, set()
        gone = self._sent_meanwhile(peer for peer, _ in self._left_open)
        for (peer, kind), left in list(self._left_open.items()):
            arrived = left.on_its_way is not None and left.on_its_way.due_s <= now_s
            answered = arrived or (peer, kind) in gone
            if arrived:
                self._came_late[peer, kind] = left
            if answered:
                came.add(peer)
            if answered or now_s >= left.deadline_s:
                del self._left_open[peer, kind]
        return frozenset(came)

    def _sent_meanwhile(self, peers: Iterable[str]) -> set[tuple[str, str]]:
        """Let these peers answer what was left open; who of them is past it, and of which kind."""
        asked, gone = set(peers), set()
        for (peer, kind), left in list(self._left_open.items()):
            if peer in asked and left.on_its_way is None:
                answer = self._answer(peer, left.key)
                if isinstance(answer, Ready) and answer.pace_bps is None:
                    sent = self._on_its_way(peer, left.key, answer)
                    self._left_open[peer, kind] = replace(left, on_its_way=sent)
                elif isinstance(answer, Gone):
                    gone.add((peer, kind))
        return gone

    def _on_its_way(self, peer: str, key: Key, answer: Ready) -> _OnItsWay:
        delay_s = self.simulation.delay_s(self.name, peer, key) + answer.after_s
        return _OnItsWay(self.simulation.now_s + delay_s, answer)

    def _answer(self, peer: str, key: Key) -> Answer | None:
        """What that peer answers now; None if it is not there."""
        sender = self.simulation._serving.get(peer)
        if sender is None or sender._answerer is None:
            return None
        return sender._answerer.answer(self.name, key)

    def _took(self, peer: str, payload: Payload) -> None:
        self.bytes_received += payload.nbytes
        sender = self.simulation._serving.get(peer)
        if sender is not None:
            sender.bytes_sent += payload.nbytes

    def close(self) -> None:
        self._closed = True
        if self.simulation._serving.get(self.name) is self:  # not one started since
            del self.simulation._serving[self.name]
        self.simulation._published(self.name)


class _SimulatedPull:
    """One pull: who is asked, and what is on its way."""

    collector: ReplyCollector

    def __init__(self, transport: SimulatedTransport, key: Key, deadline_s: float) -> None:
        self.transport, self.key, self.deadline_s = transport, key, deadline_s
        self.simulation = transport.simulation
        self.slow: dict[str, Silence] = {}
        self.on_its_way: dict[str, _OnItsWay] = {}

    def run(self) -> None:
        """Ask until there is nothing left to wait for, or time is up."""
        me, collector = self.transport.name, self.collector
        ask = list(collector.open)
        while not collector.done:
            if self.transport._closed:
                raise RunError(f"The transport of {me} is closed.")
            self._ask(ask)
            self._deliver()
            now_s, left_s = self.simulation.now_s, collector.left_s()
            if collector.done or now_s >= self.deadline_s:
                return
            due_s = min((each.due_s for each in self.on_its_way.values()), default=inf)
            wake_s = min(self.deadline_s, now_s + max(left_s, _SHORTEST_S), due_s)
            # on itself too: that is how closing ends the wait
            changed = self.simulation._wait([*collector.open, me], wake_s)
            self.transport._sent_meanwhile(changed)
            ask = [peer for peer in changed if peer in collector.open]

    def _ask(self, peers: Sequence[str]) -> None:
        for peer in sorted(peers, key=self._turn):
            if self.collector.enough:
                return
            if peer not in self.on_its_way:
                self._take(peer, self.transport._answer(peer, self.key))

    def _turn(self, peer: str) -> int:
        """Whose answer comes first is chance too."""
        key = self.key
        return crc32(f"{self.transport.name} {peer} {key.kind} {key.step} {key.round}".encode())

    def _take(self, peer: str, answer: Answer | None) -> None:
        if isinstance(answer, Gone):
            self.collector.take_gone(peer, answer.now)
        elif isinstance(answer, Refused):
            self.collector.fail(peer, _REFUSED)
        elif isinstance(answer, Ready) and answer.pace_bps is not None:
            self.slow[peer] = _TOO_SLOW  # and asked in vain until the deadline
        elif isinstance(answer, Ready):
            self.on_its_way[peer] = self.transport._on_its_way(peer, self.key, answer)
            self._deliver()

    def _deliver(self) -> None:
        """Hand over what has arrived, the first one first."""
        now_s = self.simulation.now_s
        there = [peer for peer, each in self.on_its_way.items() if each.due_s <= now_s]
        for peer in sorted(there, key=lambda peer: (self.on_its_way[peer].due_s, self._turn(peer))):
            if self.collector.enough:
                return
            answer = self.on_its_way.pop(peer).answer
            if self.collector.take(peer, answer.payload, step=answer.step):
                self.transport._took(peer, self.collector.rows[peer])
