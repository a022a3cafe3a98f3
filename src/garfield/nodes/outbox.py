"""Outbox: what a node has to say, and the only place where an attack acts.

What is published is immutable: it is copied once on its way in, and kept for
the last few steps. Who asks for an older step is told how far we are; who asks
for one that is not there yet waits, in the transport, without a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready

KEPT_STEPS = 4  # enough for a backup server to catch up with a primary that crashed


class Outbox:
    """Published vectors by key. Safe to publish from one thread and to answer from another."""

    def __init__(self, *, kept_steps: int = KEPT_STEPS) -> None:
        self.step = 0
        self._kept = kept_steps
        self._vectors: dict[Key, Payload] = {}
        self._lock = threading.Lock()
        self._wake: list[Callable[[], None]] = []

    def publish(self, key: Key, vector: Payload) -> None:
        """Make a copy of `vector` available under `key`, and forget what is too old."""
        frozen = np.array(vector, dtype=np.float32)
        frozen.setflags(write=False)
        with self._lock:
            self._vectors[key] = frozen
            self.step = max(self.step, key.step)
            horizon = self.step - self._kept
            for old in [known for known in self._vectors if known.step <= horizon]:
                del self._vectors[old]
        self.changed()

    def own(self, key: Key) -> Payload | None:
        """What was published under `key`, as its author wrote it."""
        with self._lock:
            return self._vectors.get(key)

    def answer(self, asker: str, key: Key) -> Answer:
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                return Ready(vector)
            return Gone(self.step) if key.step <= self.step - self._kept else NotYet()

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake.append(wake)

    def changed(self) -> None:
        """Tell the transport that an answer may be different now."""
        for wake in self._wake:
            wake()
