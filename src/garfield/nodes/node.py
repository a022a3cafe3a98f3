"""Node: an outbox, a transport, and how to gather enough of what peers have to say.

Synchronous rounds ask all n peers, wait for all of them while there is patience, and go on
without some if that is safe (`quorum.py`): their rows come back as None. Asynchronous ones go on
with the first q valid replies, whoever sends them. Either way a round that falls short keeps
waiting until `give_up_s`, and then says who was silent and why. Who hears that its peers are
past its step takes over their newest vectors, and their step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, TypedDict

import numpy as np

from garfield.core.errors import QuorumError, RunError
from garfield.core.silence import Reason, Silence
from garfield.nodes.doubt import Doubt
from garfield.nodes.outbox import Outbox
from garfield.nodes.patience import Patience
from garfield.nodes.quorum import Quorum
from garfield.nodes.round import Round
from garfield.nodes.waiting import ASKED, ask, told
from garfield.transport.collector import ReplyCollector, copied
from garfield.transport.contract import (
    NEWEST,
    Holes,
    Key,
    Payload,
    Replies,
    Transport,
)


@dataclass(frozen=True)
class Waits:
    """All time-outs of a node, in one place."""

    timeout_s: float = 10.0
    """How long a synchronous round waits for the slowest once it could go on without them."""
    give_up_s: float = 60.0
    """How long a round may take in all before it fails."""


class Unheard(Exception):  # noqa: N818 (a signal between a node's parts, not an error)
    """No more peers have answered than may lie, for so long that all may have gone back."""


class Behind(Exception):  # noqa: N818 (a signal between a node's parts, not an error)
    """Peers say that they are past the step that was asked for.

    More of them than may lie; or so many that, with the rows that came, all who are honest may
    have answered, and nothing else can be waited for.
    """


@dataclass(frozen=True)
class Gathered:
    """Rows ordered by the names of their senders."""

    names: tuple[str, ...]
    rows: list[Payload | None]
    """One row for each name; None for a peer that stayed silent in a synchronous round."""
    silent: Mapping[str, Silence]
    holes: Mapping[str, Holes] = field(default_factory=dict)
    """What was missing, and filled, of the rows of some peers."""


@dataclass(frozen=True)
class Newest:
    """What peers have that are further on."""

    step: int
    """Where to go: no further than somebody honest is."""
    rows: list[Payload]
    """Rows of that step or later ones, by the names of their senders."""


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
    rng: np.random.Generator | None
    """What rules draw from that draw at random; None for the system's entropy."""


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
        rng: np.random.Generator | None = None,
    ) -> None:
        self.transport = transport
        self.outbox = Outbox() if outbox is None else outbox
        self.waits = waits or Waits()
        self.clock = clock
        self.rng = rng
        self.account = Account()
        self._patience = Patience(self.waits.timeout_s)
        self._gathering: Round | None = None
        self._broken_off: tuple[Key, ReplyCollector] | None = None
        self._doubt = Doubt()
        self.lists: dict[int, Sequence[str]] = {}
        """The names of the servers and of the workers, as far as this node knows them."""
        if serves:
            self.outbox.waiting = self._waiting
        self.outbox.shared_copy = transport.shared_copy
        if serves:  # a node that is server and worker at once has one outbox, served once
            transport.serve(self.outbox)

    @property
    def name(self) -> str:
        """The name that peers know it by."""
        return self.transport.name

    def gather(
        self,
        peers: Sequence[str],
        key: Key,
        *,
        length: int,
        quorum: Quorum,
        timeout_s: float | None = None,
    ) -> Gathered:
        """Rows of `key` from as many of the peers as the quorum says.

        Raises Behind where more than f of them are past that step, Unheard where the quorum says
        so, and QuorumError where too few answer in that time, or until it is time to give up.
        """
        replies = self._ask(peers, key, length, quorum, timeout_s)
        if quorum.wanted < len(peers):
            rows: list[Payload | None] = [*replies.rows[: quorum.wanted]]
            names = replies.names[: quorum.wanted]
            return Gathered(names, rows, replies.silent, replies.holes)
        found = dict(zip(replies.names, replies.rows, strict=True))
        names = tuple(sorted(peers))
        return Gathered(names, [found.get(name) for name in names], replies.silent, replies.holes)

    def newest(
        self,
        peers: Sequence[str],
        kind: str,
        *,
        length: int,
        beyond: int,
        count: int,
        f: int,
        unsure: bool = False,
    ) -> Newest | None:
        """The newest vectors of that kind from `count` peers who are beyond a step.

        None if it was not sure that there are any, and there are not: because of doubt, or since
        all may have gone back, as `unsure` says.

        A peer may be a laggard itself, or claim to be. So all are waited for with patience, those
        with the largest claims count, and what they come to is as old as the oldest of them: with
        f < `count` liars, no newer than what somebody honest has.
        """
        least = max(count, 2 * f + 1)
        key = Key(kind, NEWEST, beyond + 1)
        if least > len(peers) and not unsure:
            if self.in_doubt:
                self._doubt.is_useless()
                return None
            raise QuorumError(
                f"{self.name} is at step {beyond} and its peers are past it. To take their newest "
                f"{kind}s it must hear {least} of them, and there are {len(peers)}. Add nodes, or "
                "resume all from a checkpoint."
            )
        quorum = Quorum(len(peers), (least,) * (f + 1), f)
        timeout_s = self.waits.timeout_s * self._doubt.time_outs if self.in_doubt else None
        if unsure and timeout_s is None:
            timeout_s = self.waits.timeout_s
        try:
            replies = self._ask(peers, key, length, quorum, timeout_s)
        except QuorumError as shortage:
            if self.in_doubt:
                self._doubt.was_wrong()
            heard = len(peers) - len(shortage.silent)
            if self.in_doubt or (unsure and heard <= f):
                return None
            raise
        rows = dict(zip(replies.names, replies.rows, strict=True))
        newest = sorted(rows, key=lambda name: (-replies.steps[name], name))[:least]
        step = min(replies.steps[name] for name in newest)
        return Newest(step, [rows[name] for name in sorted(newest)])

    def _ask(
        self, peers: Sequence[str], key: Key, length: int, quorum: Quorum, timeout_s: float | None
    ) -> Replies:
        waits = self.waits
        quorum = replace(quorum, doubt=self._doubt.time_outs)
        round_ = self._gathering = Round(quorum, self._patience, self.clock)
        before = self._heard_before(peers, key, length)
        replies = before.and_more(self.transport.pull(
            [*before.open], key, length=length, until=before.counted_in(round_),
            timeout_s=timeout_s or waits.give_up_s, stall_s=waits.timeout_s / 2,
        ))  # fmt: skip
        if round_.looks_back:
            before.absorb(replace(copied(replies), gone={}))  # who is past it is asked again
            self._patience.came_late(replies.late)
            self.account.note({}, self.clock() - round_.started)
            raise Unheard(f"{len(replies.names)} of {len(peers)} have {key.kind} {key.step}")
        self._broken_off = None
        met = round_.settle(replies)
        replies = replace(replies, silent=round_.reasons(replies.silent, met))
        self.account.note(replies.silent, self.clock() - round_.started)
        if not met:
            if self._is_behind(quorum, replies):
                raise Behind(f"{len(replies.gone)} peers are past step {key.step}")
            needed = quorum.bare_without(quorum.proven(replies.silent))
            if replies.late and len(replies.names) >= needed:  # who was charged has just answered
                return self._ask(peers, key, length, quorum, timeout_s)
            raise QuorumError(self._shortage(key, needed, len(peers), replies), replies.silent)
        self._doubt.is_over()
        return replies

    def _heard_before(self, peers: Sequence[str], key: Key, length: int) -> ReplyCollector:
        """What has come under `key` in a round that was broken off to look back.

        Rows received stay received: over a slow network, those that come one by one between two
        looks would otherwise be asked for again for ever.
        """
        if self._broken_off is None or self._broken_off[0] != key:
            self._broken_off = key, ReplyCollector(peers, key, length, lambda heard: inf)
        return self._broken_off[1]

    @property
    def in_doubt(self) -> bool:
        """Whether it was said to be behind by no more peers than may lie."""
        return self._doubt.since is not None

    def _is_behind(self, quorum: Quorum, replies: Replies) -> bool:
        """Whether to look for newer vectors; where that is in doubt, no longer than `give_up_s`."""
        if len(replies.gone) > quorum.f:
            self._doubt.since = None
            return True
        heard, gone = len(replies.names), len(replies.gone)
        proven = quorum.proven(replies.silent)
        if self._doubt.time_outs == inf or not quorum.left_behind(heard, gone, proven):
            return False
        return self._doubt.lasts_s(self.clock()) < self.waits.give_up_s

    def _waiting(self, which: int) -> Payload | None:
        """Whom this node waits for now, of a list of names; None if it knows no such list."""
        names = self.lists.get(which)
        return (
            None if names is None else told(names, self._gathering.open if self._gathering else ())
        )

    def _shortage(self, key: Key, needed: int, n: int, replies: Replies) -> str:
        asked_s, waiting = ASKED * self.waits.give_up_s, dict[str, list[str]]()
        with suppress(RunError):  # some transports carry models and gradients alone
            waiting = ask(self.transport, [*replies.silent], self.lists, asked_s)

        def told_by(peer: str) -> str:
            return f" (says it waits for {', '.join(waiting[peer])})" if peer in waiting else ""

        silent = sorted(replies.silent.items())
        who = "; ".join(f"{peer}: {why}{told_by(peer)}" for peer, why in silent)
        what = "newest models" if key.is_newest else f"{key.kind}s for step {key.step}"
        return (
            f"{self.name} got {len(replies.names)} of {n} {what} and needs {needed}, "
            f"after waiting for up to {self.waits.give_up_s:g} s. Silent: {who}."
        )

    def close(self) -> None:
        """Stop serving peers."""
        self.transport.close()
