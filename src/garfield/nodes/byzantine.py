"""Byzantine nodes: the honest node behind an outbox that lies.

The honest code is unchanged. A lie is made up when the honest vector is published, from what
the attack may know (or before, by one that is always first); `answer` then says it, to
everybody alike or, for one that equivocates, differently to each asker, when its plan says so.

Equivocation is noise, a fresh one for each asker, or with equivocate(attack=lie)
any other attack at a strength of each asker's own: own + s · (lie − own), s drawn
from [0.5, 1.5]; a lie that is silence is then kept from about half of the askers.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from garfield.attacks import View
from garfield.core.types import Floats
from garfield.nodes.knowledge import likely_rows, seen_last, seen_now
from garfield.nodes.outbox import Outbox
from garfield.nodes.plan import BEHAVIOURS, Behaviour, Notes, Plan, Seen, Spy, parse_plan
from garfield.nodes.server import Server, ServerArguments
from garfield.nodes.spied import is_spied
from garfield.nodes.timing import Speech, Timing
from garfield.nodes.worker import Data, Worker, WorkerArguments
from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "BEHAVIOURS", "Behaviour", "ByzantineServer", "ByzantineWorker", "LyingOutbox", "Notes", "Plan",
    "Spy", "Timing", "parse_plan", "said",
]  # fmt: skip

STALL_BPS = 1e-3
DRIP_BPS = 8_000.0
_REMEMBERED = 8
"""Lies about steps to come that are kept; askers are at most a few steps apart."""


def said(
    plan: Plan, asker: str, key: Key, truth: Answer, lie: Payload | None, now: int = 0
) -> Answer:
    """What a liar says to this asker under this key: a function of what it is given.

    `truth` is what an honest node would say, `lie` what was made up in its place (None for
    silence), `now` the step that the liar has reached.
    """
    speech, timing = plan.timing.speech(asker, key), plan.timing
    if speech is Speech.TRUTH:
        return truth
    if speech is Speech.NOTHING or plan.behaviour == "silence":
        return NotYet()
    newest = isinstance(truth, Ready) and truth.step is not None
    if timing.ahead and not newest:
        return Gone(now + timing.ahead)
    if not isinstance(truth, Ready):
        return truth
    told = _worded(plan, asker, key, truth, lie)
    if not isinstance(told, Ready):
        return told
    claim = None if truth.step is None else truth.step + timing.ahead
    return replace(told, after_s=timing.after_s(plan.timeout_s), step=claim)


def _worded(plan: Plan, asker: str, key: Key, truth: Ready, lie: Payload | None) -> Answer:
    match plan.behaviour:
        case "stall":
            return replace(truth, pace_bps=STALL_BPS)
        case "drip":
            return replace(truth, pace_bps=DRIP_BPS)
        case "wrong-shape":
            return replace(truth, payload=truth.payload[: len(truth.payload) // 2])
        case "equivocate":
            return _equivocation(plan, asker, key, np.asarray(truth.payload), lie)
    return NotYet() if lie is None else Ready(lie)


def _equivocation(
    plan: Plan, asker: str, key: Key, truth: Payload, lie: Payload | None
) -> Ready | NotYet:
    rng = plan.rng(key, asker)
    if plan.attack is None:
        return Ready(rng.standard_normal(len(truth)).astype(key.dtype))
    strength = rng.uniform(0.5, 1.5)
    if lie is None:
        return NotYet() if strength < 1 else Ready(truth)
    largest = float(np.finfo(key.dtype).max)
    with np.errstate(over="ignore", invalid="ignore"):  # the lie may be infinite, and stays so
        told = truth + strength * (lie.astype(np.float64) - truth)
    told = np.where(np.isfinite(lie), np.clip(told, -largest, largest), lie)
    return Ready(told.astype(key.dtype))


class Known(NamedTuple):
    """What a liar knows of the honest when it makes up a lie."""

    seen: Seen | None = None
    likely: Floats | None = None


_NOTHING = Known()


class LyingOutbox(Outbox):
    """Keeps the truth, and says something else."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__()
        self.plan = plan
        self.name = name
        """The node that it belongs to, and does not lie to."""
        self._lies: dict[tuple[Key, int], Payload | None] = {}
        self._early: dict[tuple[Key, int], Payload | None] = {}
        self._last: dict[str, Payload] = {}
        self._inventing = threading.Lock()

    def publish(self, key: Key, vector: Payload, *, copy: bool = True) -> None:
        plan = self.plan.at(key.step, self.name)
        kept = {
            at: lie for at, lie in self._lies.items() if at[0].step > key.step - at[0].kept_steps
        }
        acts = plan is not None and plan.timing.acts_on(key.kind)
        if plan is not None and acts:
            sides = (1, -1) if plan.two_faced else (1,)
            untold = [side for side in sides if (key, side) not in self._early]  # told ones stay
            known = self._looked(plan, key, len(vector)) if untold else _NOTHING
            for side in untold:
                kept[key, side] = self._lie(plan, key, vector, side, known)
        self._lies = kept
        super().publish(key, vector, copy=copy)
        own = self.own(key)
        if self.plan.timing.first and own is not None:
            self._last[key.kind] = own
        if plan is not None and acts and plan.hasty and plan.knows_all:
            seen_now(plan, key, len(vector))  # for the next lie

    def answer(self, asker: str, key: Key) -> Answer:
        if key.is_newest and self.plan.timing.ahead and asker != self.name:
            key = replace(key, round=0)  # whatever its newest is, it claims to be further on
        truth = super().answer(asker, key)
        if asker == self.name or is_spied(key):
            return truth
        if isinstance(truth, Ready) and truth.step is not None:
            key = Key(key.kind, truth.step)
        plan = self.plan.at(key.step, self.name)
        if plan is None:
            return truth
        side = plan.side(asker, key.kind)
        last = self._known_last(plan, key) if isinstance(truth, NotYet) else None
        if last is not None:
            truth, lie = Ready(last), self._foretold(plan, key, side, last)
        else:
            lie = self._early.get((key, side), self._lies.get((key, side)))
        return said(plan, asker, key, truth, lie, self.step)

    def _known_last(self, plan: Plan, key: Key) -> Payload | None:
        """What it can lie from about a step that it has not reached; None if it does not."""
        if key.is_newest:
            return None
        if plan.timing.first:
            return self._last.get(key.kind)
        seen = seen_last(plan, key)
        return seen.rows[0] if plan.hasty and plan.unanimous and seen is not None else None

    def _foretold(self, plan: Plan, key: Key, side: int, last: Payload) -> Payload | None:
        """The lie about a step that it has not reached, from the last vector that it knows."""
        with self._inventing:  # askers may come at once
            if (key, side) not in self._early:
                known = Known(seen_last(plan, key))  # no time to look, nor may this thread wait
                lie = self._lie(plan, key, last, side, known)
                kept = [*self._early.items(), ((key, side), lie)]
                self._early = dict(kept[-_REMEMBERED:])
            return self._early[key, side]

    def _looked(self, plan: Plan, key: Key, length: int) -> Known:
        """What an omniscient liar knows when it must publish."""
        if not plan.knows_all:
            return _NOTHING
        last = seen_last(plan, key)
        if plan.hasty and last is not None:
            return Known(last)
        seen = seen_now(plan, key, length)
        return Known(seen, None if seen is None else likely_rows(plan, key, seen.rows))

    def _lie(
        self, plan: Plan, key: Key, vector: Payload, side: int, known: Known
    ) -> Payload | None:
        """What to say in place of the vector."""
        if plan.attack is None:
            return vector
        notes, place, seen = plan.notes, (key, side), known.seen
        if plan.unanimous and place in notes.agreed:  # made up while this one was looking
            return notes.agreed[place]
        if plan.knows_all and seen is None:
            return vector  # nothing was seen to lie about: pass for honest this time
        view = View(
            own=np.array(vector), n=plan.n, f=plan.f, rank=plan.rank, rng=plan.rng(key),
            honest=None if seen is None else seen.rows, names=() if seen is None else seen.names,
            likely=known.likely, defence=plan.defence, side=side,
            memory=notes.memory.setdefault(key.kind, {}),
        )  # fmt: skip
        lie = plan.attack(view)
        if lie is not None:
            lie = np.asarray(lie, dtype=key.dtype)
            lie.setflags(write=False)
        if plan.unanimous:
            for old in [at for at in notes.agreed if at[0].step <= key.step - at[0].kept_steps]:
                del notes.agreed[old]
            notes.agreed[place] = lie
        return lie


class ByzantineWorker(Worker):
    """A worker whose gradients are lies."""

    def __init__(
        self, model: Any, data: Data, *, plan: Plan, **worker: Unpack[WorkerArguments]
    ) -> None:
        worker.setdefault("outbox", LyingOutbox(plan, worker["transport"].name))
        super().__init__(model, data, **worker)


class ByzantineServer(Server):
    """A server whose models are lies."""

    def __init__(
        self, model: Any, optimizer: Any = None, *, plan: Plan, **server: Unpack[ServerArguments]
    ) -> None:
        server.setdefault("outbox", LyingOutbox(plan, server["transport"].name))
        super().__init__(model, optimizer, **server)
