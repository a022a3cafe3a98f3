"""What a transport is: nodes publish vectors under keys, and pull them from each other.

A transport is `serve`, `pull`, `close`. Concurrency stays inside it: nodes read
as plain synchronous code. Every transport is held to one contract test, and no
peer is trusted: what arrives is one vector of the length that was asked for,
under the key that was asked for, all of it finite, or it counts as silence, with
the reason kept. Vectors are of float32; those of a kind in `WIDE` are of float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from garfield.core.silence import Silence
from garfield.core.types import Flags

Payload: TypeAlias = npt.NDArray[np.floating[Any]]
"""A flat vector as it travels. Whoever gets one must not change it."""

WIDE = frozenset({"coded"})
"""Kinds of float64 vectors: the rows of DRACO's cyclic code, which float32 would spoil."""


class Key(NamedTuple):
    """What is asked for: ("model", 7), or ("aggregate", 7, 2) for the third contraction round."""

    kind: str
    step: int
    round: int = 0

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Of the numbers that travel under it: asker and answerer know it from the kind."""
        return numbers_of(self.kind)


@dataclass(frozen=True)
class Ready:
    """The vector is there. A liar may send any bytes, and slowly."""

    payload: Payload | bytes
    pace_bps: float | None = None
    """Bits per second to send at, for a liar that drips; None for as fast as it goes."""


@dataclass(frozen=True)
class Gone:
    """That step is over here, and no longer kept; the asker is told where we are."""

    now: int


@dataclass(frozen=True)
class NotYet:
    """Nothing under that key yet: the asker is kept waiting, without a thread, until it is."""


Answer: TypeAlias = Ready | Gone | NotYet


class Source(Protocol):
    """What a node lets its transport serve from: its outbox."""

    def answer(self, asker: str, key: Key) -> Answer:
        """At once, never blocking; called from the transport's own thread."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from any thread, whenever an answer may have changed."""


@dataclass(frozen=True)
class Holes:
    """Which blocks of a row were lost on the way: what stands there is not its sender's."""

    missing: Flags
    """(blocks,) true for the lost ones."""
    block: int
    """Numbers in a block; the last may have fewer."""

    def missing_values(self, length: int) -> Flags:
        """(length,) true where a number was lost."""
        return np.repeat(self.missing, self.block)[:length]


@dataclass(frozen=True)
class Replies:
    """What a pull brought, ordered by the peers' names, never by arrival."""

    names: tuple[str, ...]
    rows: tuple[Payload, ...]
    """Valid until the next pull of the same kind, which may use the memory again."""
    silent: Mapping[str, Silence] = field(default_factory=dict)
    """Everybody else who was asked, and why they were not heard."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Peers that are past this step, and the step that they claim to be at; in `silent` too."""
    holes: Mapping[str, Holes] = field(default_factory=dict)
    """Peers whose rows came over a lossy link with parts missing, which were filled."""


Until: TypeAlias = Callable[[Collection[str]], bool]
"""Of the peers that have validly answered: are these enough?"""


class Transport(Protocol):
    """How one node reaches the others."""

    @property
    def name(self) -> str:
        """Whose transport this is, as the peers know it."""

    @property
    def address(self) -> str:
        """Where this node listens, for its peers to know; there is one once it serves."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of vectors sent to peers so far."""

    @property
    def bytes_received(self) -> int:
        """Bytes of vectors received from peers so far."""

    def shared_copy(self, vector: Payload) -> Payload | None:
        """A copy that peers on this host can be given as it is; None if that is no gain."""

    def serve(self, source: Source) -> None:
        """Start answering peers from `source`. Once."""

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float
    ) -> Replies:
        """Ask all peers at once for `key`, a vector of `length` numbers.

        Returns as soon as `until` is satisfied by those who validly answered, when everybody has
        answered or failed for good, or after `timeout_s`; what is still under way then is
        cancelled. A peer that is not there yet is tried again until the deadline. Asking oneself
        goes the same way.
        """

    def close(self) -> None:
        """Stop serving and free everything: threads, ports, files."""


def numbers_of(kind: str) -> np.dtype[np.floating[Any]]:
    """The dtype of vectors of a kind."""
    return np.dtype(np.float64 if kind in WIDE else np.float32)


def first(count: int) -> Until:
    """Enough: any `count` of them (asynchronous quorums)."""
    return lambda names: len(names) >= count


def all_of(awaited: Collection[str]) -> Until:
    """Enough: every one of these (synchronous rounds)."""
    waited = frozenset(awaited)
    return lambda names: waited.issubset(names)
