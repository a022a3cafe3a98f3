"""Many nodes in one process, on a virtual clock: the same nodes, no threads, the same bits.

Every node is a greenlet that runs until it must wait in `pull`; the scheduler
then runs the next one that has something to do, in the order in which they
became ready. When nobody can go on, the clock jumps to the next deadline. Two
runs from the same seed take the same turns.

Long work that shares nothing (a gradient) may be done on other cores meanwhile:
whoever asked for it goes on when nobody else can, in an order that does not depend on
when the work is done: turns and results are the same however many threads there are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from random import Random
from typing import TypeVar
from weakref import ReferenceType, ref
from zlib import crc32

from greenlet import getcurrent, greenlet

from garfield.core.errors import Deadlock, RunError
from garfield.core.silence import Reason, Silence
from garfield.kernels.finite import all_finite
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Answerer,
    Gone,
    Key,
    Payload,
    Ready,
    Replies,
    Until,
)

T = TypeVar("T")

_TOO_SLOW = Silence(Reason.TOO_SLOW, "too slow")


class Simulation:
    """The scheduler: nodes by name, whose turn it is, and what time it is."""

    def __init__(self, threads: int = 1) -> None:
        """`threads` is how much work may be done at once; turns are taken one by one always."""
        self.threads = threads
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
        """The transport of one node. Nothing takes time on the way: `transport/faults.py` can."""
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


class SimulatedTransport:
    """One node's way to the others. Nothing is copied: payloads are immutable by contract."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.bytes_received = 0
        self.bytes_sent = 0
        self._answerer: Answerer | None = None
        self._closed = False

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
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        deadline_s = self.simulation.now_s + timeout_s
        collector = ReplyCollector(peers, key, length, until, is_finite=self.simulation.is_finite)
        slow: dict[str, Silence] = {}
        ask = list(collector.open)
        while not collector.done:
            if self._closed:
                raise RunError(f"The transport of {self.name} is closed.")
            for peer in sorted(ask, key=lambda peer: self._turn(peer, key)):
                self._ask(peer, key, collector, slow)
                if collector.enough:
                    break
            if collector.done or self.simulation.now_s >= deadline_s:
                break
            # on itself too: that is how closing ends the wait
            changed = self.simulation._wait([*collector.open, self.name], deadline_s)
            ask = [peer for peer in changed if peer in collector.open]
        return collector.replies(timeout_s, {} if collector.enough else slow)

    def _turn(self, peer: str, key: Key) -> int:
        """Whose answer comes first is chance too."""
        return crc32(f"{self.name} {peer} {key.kind} {key.step} {key.round}".encode())

    def _ask(
        self, peer: str, key: Key, collector: ReplyCollector, slow: dict[str, Silence]
    ) -> None:
        sender = self.simulation._serving.get(peer)
        if sender is None or sender._answerer is None:
            return
        answer = sender._answerer.answer(self.name, key)
        if isinstance(answer, Gone):
            collector.take_gone(peer, answer.now)
        elif isinstance(answer, Ready) and answer.pace_bps is not None:
            slow[peer] = _TOO_SLOW  # and asked in vain until the deadline
        elif isinstance(answer, Ready) and collector.take(peer, answer.payload):
            self.bytes_received += collector.rows[peer].nbytes
            sender.bytes_sent += collector.rows[peer].nbytes

    def close(self) -> None:
        self._closed = True
        if self.simulation._serving.get(self.name) is self:  # not one started since
            del self.simulation._serving[self.name]
        self.simulation._published(self.name)
