"""Outbox: what a node has to say, and the only place where an attack acts.

What is published is immutable: it is copied once on its way in, or handed over for
good, and kept for the last few steps. Who asks for an older step is told how far we
are; who asks for one that is not there yet waits, in the transport, without a thread.

A node may take q + 3 vectors more than plain training, q being what it pulls: so
three steps of models or gradients are kept, and of what servers tell each other
(proposals, aggregates) only the last step, which lives until the next is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready

KEPT_STEPS = 3  # enough for a backup server to catch up with a primary that crashed
_AMONG_SERVERS = ("proposal", "aggregate")


class Outbox:
    """Published vectors by key. Safe to publish from one thread and to answer from another."""

    def __init__(self, *, kept_steps: int = KEPT_STEPS) -> None:
        self.step = 0
        self._kept = kept_steps
        self._vectors: dict[Key, Payload] = {}
        self._lock = threading.Lock()
        self._wake: list[Callable[[], None]] = []

    def publish(self, key: Key, vector: Payload, *, copy: bool = True) -> None:
        """Make a copy of `vector` available under `key`, and forget what is too old.

        Without the copy, the vector is the outbox's from now on: nobody may write to it.
        """
        frozen = (np.array if copy else np.asarray)(vector, dtype=key.dtype)
        frozen.setflags(write=False)
        with self._lock:
            self._vectors[key] = frozen
            self.step = max(self.step, key.step)
            for old in [known for known in self._vectors if self._over(known)]:
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
            return Gone(self.step) if self._over(key) else NotYet()

    def _over(self, key: Key) -> bool:
        return key.step <= self.step - (1 if key.kind in _AMONG_SERVERS else self._kept)

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake.append(wake)

    def changed(self) -> None:
        """Tell the transport that an answer may be different now."""
        for wake in self._wake:
            wake()
