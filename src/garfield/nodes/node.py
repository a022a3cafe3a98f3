"""Node: an outbox, a transport, and how to gather enough of what peers have to say.

Synchronous (quorum = all n peers): ask all and wait until the deadline; up to f
may stay silent, and their rows come back as None, which a rule takes for f − s
faults among the n − s rows left. Asynchronous (quorum < n): the fastest q valid
replies, whoever sends them. Either way a round that falls short keeps trying
until `give_up_s`, and then says who was silent and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from garfield.core.errors import ConfigError, QuorumError
from garfield.core.silence import Reason, Silence
from garfield.nodes.outbox import Outbox
from garfield.nodes.patience import Patience
from garfield.transport.contract import (
    Holes,
    Key,
    Payload,
    Replies,
    Transport,
    all_of,
    first,
)


@dataclass(frozen=True)
class Waits:
    """All time-outs of a node, in one place."""

    timeout_s: float = 10.0
    """How long a synchronous round waits for the slowest before it goes on with n − f."""
    give_up_s: float = 60.0
    """How long a round may take in all before it fails."""


class Behind(Exception):  # noqa: N818 (a signal between a node's parts, not an error)
    """Peers are past the step that was asked for; carries the step to jump to."""

    def __init__(self, step: int) -> None:
        super().__init__(f"peers are at step {step}")
        self.step = step


@dataclass(frozen=True)
class Gathered:
    """Rows ordered by the names of their senders."""

    names: tuple[str, ...]
    rows: list[Payload | None]
    """One row for each name; None for a peer that stayed silent in a synchronous round."""
    silent: Mapping[str, Silence]
    holes: Mapping[str, Holes] = field(default_factory=dict)
    """What was missing, and filled, of the rows of some peers."""


class Fault(NamedTuple):
    """How often a peer was silent for one reason."""

    times: int
    detail: str
    """The detail of the last time."""


@dataclass
class Account:
    """What a node's rounds cost so far, and what its peers did instead of answering."""

    communication_s: float = 0.0
    faults: dict[str, dict[Reason, Fault]] = field(default_factory=dict)
    """How often each peer was silent, or sent what counts as silence, by reason."""

    def note(self, silent: Mapping[str, Silence], waited_s: float) -> None:
        """A round has ended; why some were not heard in it."""
        self.communication_s += waited_s
        for peer, silence in silent.items():
            if silence.reason is not Reason.NOT_NEEDED:
                of = self.faults.setdefault(peer, {})
                before = of.get(silence.reason)
                of[silence.reason] = Fault(before.times + 1 if before else 1, silence.detail)


class NodeArguments(TypedDict, total=False):
    """What every node may be given by name, besides what its own class asks for."""

    outbox: Outbox | None
    waits: Waits | None
    clock: Callable[[], float]
    """Seconds, from any beginning."""
    serves: bool
    """False for one of two nodes that share an outbox: it is served once."""


class Node:
    """What servers and workers share."""

    def __init__(
        self,
        transport: Transport,
        *,
        outbox: Outbox | None = None,
        waits: Waits | None = None,
        clock: Callable[[], float] = time.perf_counter,
        serves: bool = True,
    ) -> None:
        self.transport = transport
        self.outbox = Outbox() if outbox is None else outbox
        self.waits = waits or Waits()
        self.clock = clock
        self.account = Account()
        self._patience: dict[tuple[str, ...], Patience] = {}
        self.outbox.shared_copy = transport.shared_copy
        if serves:  # a node that is server and worker at once has one outbox, served once
            transport.serve(self.outbox)

    @property
    def name(self) -> str:
        """The name that peers know it by."""
        return self.transport.name

    def gather(
        self, peers: Sequence[str], key: Key, *, length: int, quorum: int, f: int
    ) -> Gathered:
        """Rows of `key` from `quorum` of the peers, of whom f may be faulty."""
        if not 1 <= quorum <= len(peers):
            raise ConfigError(f"A quorum of {quorum} is impossible with {len(peers)} peers.")
        started = self.clock()
        try:
            replies = self._ask(peers, key, length, quorum, f)
        except QuorumError as failure:
            self.account.note(failure.silent, self.clock() - started)
            raise
        self.account.note(replies.silent, self.clock() - started)
        if quorum < len(peers):
            names = replies.names[:quorum]
            return Gathered(names, list(replies.rows[:quorum]), replies.silent, replies.holes)
        found = dict(zip(replies.names, replies.rows, strict=True))
        names = tuple(sorted(peers))
        rows = [found.get(name) for name in names]
        return Gathered(names, rows, replies.silent, replies.holes)

    def _ask(self, peers: Sequence[str], key: Key, length: int, quorum: int, f: int) -> Replies:
        synchronous = quorum == len(peers)
        needed = quorum - f if synchronous else quorum
        patience = self._patience.setdefault(tuple(peers), Patience(tuple(peers)))
        everybody, enough = all_of(patience.awaited()), first(needed)
        deadline = self.clock() + self.waits.give_up_s
        asked, patient_s = self.clock(), self.waits.timeout_s
        replies = self.transport.pull(
            peers, key, length=length, timeout_s=patient_s,
            until=(lambda names: everybody(names) and enough(names)) if synchronous else enough,
        )  # fmt: skip
        while len(replies.names) < needed:
            if len(replies.gone) > f:
                raise Behind(sorted(replies.gone.values(), reverse=True)[f])
            left = deadline - self.clock()
            # all have answered, and it will not change; clocks round, so not to the last digit
            early = self.clock() - asked < 0.99 * patient_s
            hopeless = early and not any(why.reason.may_pass for why in replies.silent.values())
            if left <= 0 or hopeless:
                raise QuorumError(self._shortage(key, needed, len(peers), replies), replies.silent)
            asked, patient_s = self.clock(), min(left, self.waits.timeout_s)
            replies = self.transport.pull(
                peers, key, length=length, until=enough, timeout_s=patient_s
            )
        patience.note(replies.names)
        return replies

    def _shortage(self, key: Key, needed: int, n: int, replies: Replies) -> str:
        who = "; ".join(f"{peer}: {why}" for peer, why in sorted(replies.silent.items()))
        return (
            f"{self.name} got {len(replies.names)} of {n} {key.kind}s for step {key.step} and "
            f"needs {needed}, after waiting for up to {self.waits.give_up_s:g} s. Silent: {who}."
        )

    def close(self) -> None:
        """Stop serving peers."""
        self.transport.close()
