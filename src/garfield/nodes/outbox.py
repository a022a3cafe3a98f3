"""Outbox: what a node has to say, and the only place where an attack acts.

What is published is immutable: it is copied once on its way in, or handed over for
good, and kept for as many steps as its kind says. Who asks for an older step is told how far we
are; who asks for one that is not there yet waits, in the transport, without a thread.

Each step kept is a vector of memory: so of most kinds two steps are kept, the present
one and the one that a slower peer may still ask for (`transport/contract.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready


class Outbox:
    """Published vectors by key. Safe to publish from one thread and to answer from another."""

    def __init__(self) -> None:
        self.step = 0
        self._vectors: dict[Key, Payload] = {}
        self._lock = threading.Lock()
        self._wake: list[Callable[[], None]] = []
        self.shared_copy: Callable[[Payload], Payload | None] = lambda vector: None
        """The transport's own way to keep a vector, in memory that peers can be given."""

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
            for old in [known for known in self._vectors if self._over(known)]:
                del self._vectors[old]

    def own(self, key: Key) -> Payload | None:
        """What was published under `key`, as its author wrote it."""
        with self._lock:
            return self._vectors.get(key)

    def answer(self, asker: str, key: Key) -> Answer:
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                return Ready(vector)
            return Gone(self.step) if self._over(key) else NotYet()

    def _over(self, key: Key) -> bool:
        return key.step <= self.step - key.kept_steps

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake.append(wake)

    def changed(self) -> None:
        """Tell the transport that an answer may be different now."""
        for wake in self._wake:
            wake()
