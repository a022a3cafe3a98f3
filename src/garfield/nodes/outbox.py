"""Outbox: what a node has to say, and the only place where an attack acts.

What is published is immutable: it is copied once on its way in, or handed over for
good, and kept for as many steps as its kind says. Who asks for an older step is told how far we
are; who asks for one that is not there yet waits, in the transport, without a thread.

Each step kept is a vector of memory: so of most kinds two steps are kept, the present
one and the one that a slower peer may still ask for (`transport/contract.py`).

Not everybody may ask for everything: workers answer their servers, servers their workers and
each other (`audience`). What an omniscient liar of an experiment is shown comes under kinds of
their own, to those alone whom the experiment names (`spied_by`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from garfield.nodes.spied import is_spied, plain
from garfield.nodes.standing import SAID, STANDING
from garfield.nodes.waiting import WAITING
from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready, Refused

Audience: TypeAlias = Callable[[str, str], bool]
"""Says of an asker and a kind of vectors whether the one may have the other."""


class Outbox:
    """Published vectors by key. Safe to publish from one thread and to answer from another."""

    def __init__(self) -> None:
        self.step = 0
        self._vectors: dict[Key, Payload] = {}
        self._left_out: set[Key] = set()
        self._longer: set[Key] = set()
        self._lock = threading.Lock()
        self._wake: list[Callable[[], None]] = []
        self.waiting: Callable[[int], Payload | None] = lambda which: None
        """Whom the node waits for (`waiting.py`)."""
        self.audience: Audience = lambda asker, kind: True
        """Who may ask for what; the node that owns the outbox says it."""
        self.shared_copy: Callable[[Payload], Payload | None] = lambda vector: None
        """The transport's own way to keep a vector, in memory that peers can be given."""
        self.spied_by: frozenset[str] = frozenset()
        """Liars of an experiment that declares them omniscient: they may look (`spied.py`)."""
        self.goes_back = False
        """Whether who asks for a step that is over waits until it is done again: a worker's only
        server is trusted, and asks for such a step if it has gone back itself."""
        self.asked: dict[str, int] = {}
        """The latest step of which each peer has asked for something that it may ask for."""

    def publish(self, key: Key, vector: Payload, *, copy: bool = True) -> None:
        """Make a copy of `vector` available under `key`, and forget what is too old.

        Without the copy, the vector is the outbox's from now on: nobody may write to it.
        """
        self._forget(key.step)  # first: the new one then takes the place of the oldest
        vector = np.asarray(vector, dtype=key.dtype)
        kept = self.shared_copy(vector)
        if kept is None:
            kept = vector.copy() if copy else vector
        kept.setflags(write=False)
        with self._lock:
            self._vectors[key] = kept
        self.changed()

    def _forget(self, step: int) -> None:
        with self._lock:
            self.step = max(self.step, step)
            for old in [known for known in self._vectors if self._is_old(known)]:
                del self._vectors[old]

    def go_back(self, step: int) -> None:
        """Forget that step and all after it: they will be done again."""
        with self._lock:
            self.step = step
            self._vectors = {key: row for key, row in self._vectors.items() if key.step < step}
            self._left_out = {key for key in self._left_out if key.step < step}
            self.asked.clear()  # by those who are going back, too
        self.changed()

    def leave_out(self, key: Key) -> None:
        """Say that nothing will ever come under `key`: whoever waits for it would do so in vain."""
        with self._lock:
            self._left_out = {known for known in self._left_out if not self._is_old(known)} | {key}
        self.changed()

    def keep_longer(self, key: Key) -> None:
        """Keep what is published under `key` for one step more than others of its kind."""
        with self._lock:
            self._longer = {key}

    def own(self, key: Key) -> Payload | None:
        """What was published under `key`, as its author wrote it."""
        with self._lock:
            return self._vectors.get(key)

    def answer(self, asker: str, key: Key) -> Answer:
        if is_spied(key):
            return self._found(plain(key)) if asker in self.spied_by else Refused()
        if not self.audience(asker, key.kind):
            return Refused()
        if not key.is_newest:
            self.asked[asker] = max(key.step, self.asked.get(asker, 0))
        found = self._found(key)
        return NotYet() if self.goes_back and isinstance(found, Gone) else found

    def _found(self, key: Key) -> Answer:
        if key.kind == WAITING.name:
            said = self.waiting(key.round)
            return Refused() if said is None else Ready(said)
        with self._lock:
            if key.kind == STANDING.name:
                at = self._newest(Key("model", key.step))
                return replace(at, payload=SAID) if isinstance(at, Ready) else at
            if key.is_newest:
                return self._newest(key)
            vector = self._vectors.get(key)
            if vector is None and key.step < self.step and key.afterwards is not None:
                vector = self._vectors.get(key.afterwards)
            if vector is not None:
                return Ready(vector)
            return Gone(max(self.step, key.step + 1)) if self._over(key) else NotYet()

    def _newest(self, key: Key) -> Answer:
        """The newest of a kind, if it is of the step `key.round` or a later one."""
        steps = [known.step for known in self._vectors if known.kind == key.kind]
        if not steps or max(steps) < key.round:
            return NotYet()
        return Ready(self._vectors[Key(key.kind, max(steps))], step=max(steps))

    def _over(self, key: Key) -> bool:
        """Whether it is no longer kept, or was left out: steps never fall."""
        return key.step < self.step or key in self._left_out

    def _is_old(self, key: Key) -> bool:
        return key.step <= self.step - key.kept_steps - (key in self._longer)

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake.append(wake)

    def changed(self) -> None:
        """Tell the transport that an answer may be different now."""
        for wake in self._wake:
            wake()
