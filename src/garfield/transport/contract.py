"""What a transport is: nodes publish vectors under keys, and pull them from each other.

A transport is `serve`, `pull`, `close`. Concurrency stays inside it: nodes read
as plain synchronous code. Every transport is held to one contract test, which
`garfield.testing.check_transport` runs over anybody's. No peer is trusted: what
arrives is one vector of the length that was asked for, under the key that was
asked for, all of it finite, or it counts as silence, with the reason kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ConfigError, UnknownName
from garfield.core.silence import Silence
from garfield.core.types import Flags

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

Payload: TypeAlias = npt.NDArray[np.floating[Any]]
"""A flat vector as it travels. Whoever gets one must not change it."""


# -- what is asked for ------------------------------------------------------------------------


_FLOAT32: np.dtype[np.floating[Any]] = np.dtype(np.float32)
_NUMBERS = tuple(np.dtype(name) for name in ("float32", "float64", "uint32", "uint64"))
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class VectorKind:
    """What holds for all vectors of a kind, at whoever sends and whoever asks."""

    name: str
    dtype: np.dtype[Any] = _FLOAT32
    """Of 4 or 8 bytes: floats, or whole numbers without a sign (of hidden vectors, say)."""
    kept_steps: int = 2
    """How many steps an outbox keeps: the present one, and what a slower peer may want."""
    lossy: bool = False
    """Whether parts of them may be lost on the way, where links are lossy."""
    afterwards: str = ""
    """The kind whose vector of the same step answers for one that is kept no longer, while it is
    itself: who asked in time and was answered late goes on with that."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"A kind of vector is named by a short lower-case word like gradient, got "
                f"{self.name!r}."
            )
        if self.dtype not in _NUMBERS:
            raise ConfigError(f"{self.name}: numbers are float or uint of 4 or 8 bytes.")
        if self.lossy and self.dtype != _FLOAT32:
            raise ConfigError(f"{self.name}: only float32 travels in datagrams, not {self.dtype}.")

    def flaw(self, payload: Payload) -> Silence | None:
        """Why a finite vector of the right length is none of this kind; None if it is one."""
        return None


Kind = TypeVar("Kind", bound=VectorKind)

_KINDS: dict[str, VectorKind] = {}


def declare_kind(kind: Kind) -> Kind:
    """Let vectors of a new kind be published and asked for, under a name of its own."""
    if _KINDS.setdefault(kind.name, kind) != kind:
        raise ConfigError(f"{kind.name} is a kind of vector already. Choose another name.")
    return kind


MODEL = declare_kind(VectorKind("model", lossy=True))
GRADIENT = declare_kind(VectorKind("gradient", lossy=True))
PROPOSAL = declare_kind(VectorKind("proposal", kept_steps=1, afterwards="model"))
"""A server's own update, joined with the others'. Who sends a gradient of this step, or its
model, has done with proposals before it.

A server that is a step ahead answers by the model that it has joined, which lies between honest
proposals. Otherwise two halves of the servers, a step apart, could wait for each other for ever:
the one for proposals that are forgotten, the other for those that would follow them."""
AGGREGATE = declare_kind(VectorKind("aggregate"))
CODED = declare_kind(VectorKind("coded", dtype=np.dtype(np.float64)))
"""A row of DRACO's cyclic code, which float32 would spoil."""


def kind_named(name: str) -> VectorKind:
    """The kind of that name; UnknownName if nobody declared it."""
    if name not in _KINDS:
        raise UnknownName("a kind of vector", name, _KINDS)
    return _KINDS[name]


NEWEST = 2**62
"""In place of a step: whichever is the peer's newest; its answer says which step that is."""


@dataclass(frozen=True, order=True)
class Key:
    """What is asked for: ("model", 7), or ("aggregate", 7, 2) for the third contraction round."""

    kind: str
    step: int
    round: int = 0

    def __post_init__(self) -> None:
        kind_named(self.kind)

    @property
    def is_newest(self) -> bool:
        """Whether any step will do."""
        return self.step == NEWEST

    @property
    def least_step(self) -> int:
        """The earliest step whose vector answers it."""
        return self.round if self.is_newest else self.step

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numbers that travel under it: asker and answerer know it from the kind."""
        return kind_named(self.kind).dtype

    @property
    def kept_steps(self) -> int:
        """How many steps an outbox keeps of its kind."""
        return kind_named(self.kind).kept_steps

    @property
    def afterwards(self) -> Key | None:
        """What answers for it once it is kept no longer."""
        kind = kind_named(self.kind).afterwards
        return Key(kind, self.step) if kind else None


# -- what is answered -------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The vector is there. A liar may send any bytes, late and slowly."""

    payload: Payload | bytes
    pace_bps: float | None = None
    """Bits per second to send at, for a liar that drips; None for as fast as it goes."""
    after_s: float = 0.0
    """Seconds to keep it back, for a liar that wants to be late."""
    step: int | None = None
    """Which step it is of, where the newest was asked for."""


@dataclass(frozen=True)
class Gone:
    """That step is over here, and no longer kept; the asker is told where we are."""

    now: int


@dataclass(frozen=True)
class NotYet:
    """Nothing under that key yet: the asker is kept waiting, without a thread, until it is."""


@dataclass(frozen=True)
class Refused:
    """That is nothing for this asker."""


Answer: TypeAlias = Ready | Gone | NotYet | Refused


class Answerer(Protocol):
    """What a node lets its transport answer peers from: its outbox."""

    def answer(self, asker: str, key: Key) -> Answer:
        """Answer at once, never blocking; called from the transport's own thread."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from any thread, whenever an answer may have changed."""


# -- what a pull brings -----------------------------------------------------------------------


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
    steps: Mapping[str, int] = field(default_factory=dict)
    """Where the newest was asked for: the step of each row, as its sender claims."""
    late: frozenset[str] = frozenset()
    """Peers who have, since the last pull, answered an earlier one that had ended without them."""


class Heard(Protocol):
    """How far a pull has come."""

    @property
    def rows(self) -> Mapping[str, Payload]:
        """Who has validly answered, and what."""

    @property
    def steps(self) -> Mapping[str, int]:
        """Where the newest was asked for: the step of each row."""

    @property
    def gone(self) -> Mapping[str, int]:
        """Who is past the step that was asked for, and where they claim to be."""

    @property
    def failed(self) -> Mapping[str, Silence]:
        """Who will not answer any more, and why."""

    @property
    def open(self) -> Collection[str]:
        """Who may still answer."""


Until: TypeAlias = Callable[[Heard], float]
"""Says for how many seconds more a pull shall wait: 0 for enough, infinity for its whole time.

It is asked again whenever a peer has answered or failed, and when the seconds are over."""


def first(count: int) -> Until:
    """Enough: any `count` of them (asynchronous quorums)."""
    return lambda heard: 0.0 if len(heard.rows) >= count else inf


def all_of(awaited: Collection[str]) -> Until:
    """Enough: every one of these (synchronous rounds)."""
    waited = frozenset(awaited)
    return lambda heard: 0.0 if waited.issubset(heard.rows) else inf


# -- the transport ----------------------------------------------------------------------------


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
        """Bytes of vectors received from peers so far, valid or not."""

    def shared_copy(self, vector: Payload) -> Payload | None:
        """A copy that peers on this host can be given as it is; None if that is no gain."""

    def serve(self, answerer: Answerer) -> None:
        """Start answering peers. Once."""

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float,
        stall_s: float | None = None,
    ) -> Replies:  # fmt: skip
        """Ask all peers at once for `key`, a vector of `length` numbers.

        Returns as soon as `until` is satisfied by those who validly answered, when everybody has
        answered or failed for good, or after `timeout_s`. A peer that is not there yet is tried
        again until then, and so is one that has begun to send and made a pause of `stall_s` (half
        of `timeout_s`, if not said; longer every time). A request that is still under way at the
        end goes on, for as long as `timeout_s`: what comes of it is too late to count, but its
        sender is in `late` of the next replies, and it counts for the next pull of its kind if that
        is for the same key. Asking oneself goes the same way.
        """

    def close(self) -> None:
        """Stop serving and free everything: threads, ports, files."""


class PullArguments(TypedDict, total=False):
    """What a pull is given by name, for wrappers that pass it on: see `Transport.pull`."""

    length: Required[int]
    until: Required[Until]
    timeout_s: Required[float]
    stall_s: float | None


class WrappedTransport:
    """A transport around another, to which it leaves all that a subclass does not change."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def bytes_sent(self) -> int:
        return self.inner.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self.inner.bytes_received

    def shared_copy(self, vector: Payload) -> Payload | None:
        return self.inner.shared_copy(vector)

    def serve(self, answerer: Answerer) -> None:
        self.inner.serve(answerer)

    def pull(self, peers: Sequence[str], key: Key, **how: Unpack[PullArguments]) -> Replies:
        return self.inner.pull(peers, key, **how)

    def close(self) -> None:
        self.inner.close()
