"""The one place where a pull's replies are collected: checked, counted, and put in order.

Transports differ in how vectors reach them. What counts, when it is enough, and
what is said of those who were not heard, is decided here for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from garfield.core.silence import (
    NOT_FINITE,
    NOT_NEEDED,
    Reason,
    Silence,
    gone,
    no_answer,
)
from garfield.kernels.finite import all_finite
from garfield.transport.contract import (
    NEWEST,
    Heard,
    Holes,
    Key,
    Payload,
    Replies,
    Until,
    kind_named,
)


class ReplyCollector:
    """Who has answered what in one pull.

    A peer is open until it has answered or failed for good. `is_finite` may be a cheaper
    question where the rows were looked at on their way.
    """

    def __init__(
        self,
        peers: Collection[str],
        key: Key,
        length: int,
        until: Until,
        *,
        is_finite: Callable[[Payload], bool] = all_finite,
    ) -> None:
        self.open = dict.fromkeys(sorted(peers))
        self.rows: dict[str, Payload] = {}
        self.steps: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.holes: dict[str, Holes] = {}
        self._key, self._length, self._until = key, length, until
        self._kind = kind_named(key.kind)
        self._is_finite = is_finite
        self.failed: dict[str, Silence] = {}
        self.enough = False
        """Whether those who validly answered suffice; that stays so."""
        self.left_s()

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.enough or not self.open

    def left_s(self) -> float:
        """How many seconds more to wait for those who are open."""
        left_s = 0.0 if self.enough else self._until(self)
        self.enough = left_s <= 0
        return left_s

    def take(
        self,
        peer: str,
        payload: Payload | bytes,
        holes: Holes | None = None,
        step: int | None = None,
    ) -> bool:
        """Take a peer's vector if it is valid and still needed; whether it was taken."""
        if self.enough:
            return False
        flaw = self._flaw(payload, step)
        if flaw is not None:
            self.fail(peer, flaw)
            return False
        assert isinstance(payload, np.ndarray)
        self.open.pop(peer, None)
        self.rows[peer] = payload.view()
        self.rows[peer].flags.writeable = False
        if step is not None:
            self.steps[peer] = step
        if holes is not None and holes.missing.any():
            self.holes[peer] = holes
        self.left_s()
        return True

    def take_gone(self, peer: str, now: int) -> None:
        """Note that a peer says to be past the step, and at step `now`."""
        if now <= self._key.step:
            detail = f"says step {self._key.step} is gone, and to be at {now}"
            self.fail(peer, Silence(Reason.WRONG_STEP, detail))
            return
        self.gone[peer] = now
        self.fail(peer, gone(now))

    def fail(self, peer: str, silence: Silence) -> None:
        """Give up on a peer."""
        self.open.pop(peer, None)
        self.failed[peer] = silence
        self.left_s()

    def absorb(self, replies: Replies) -> None:
        """Take what a pull of the same key has brought, whose rows are checked already.

        Those whom it left unheard stay open, and why is forgotten: they may be asked again.
        """
        self.rows |= zip(replies.names, replies.rows, strict=True)
        self.steps |= replies.steps
        self.holes |= replies.holes
        for peer in replies.names:
            self.open.pop(peer, None)
        for peer, now in replies.gone.items():
            self.take_gone(peer, now)
        self.left_s()

    def counted_in(self, until: Until) -> Until:
        """The same decision, of what was absorbed and what a pull has heard together."""
        return lambda heard: until(Together(self, heard) if self.rows or self.failed else heard)

    def and_more(self, replies: Replies) -> Replies:
        """What was absorbed and what a later pull of the same key has brought, together."""
        rows = self.rows | dict(zip(replies.names, replies.rows, strict=True))
        names = tuple(sorted(rows))
        steps, holes = self.steps | {**replies.steps}, self.holes | {**replies.holes}
        return replace(
            replies, names=names, rows=tuple(map(rows.__getitem__, names)), steps=steps, holes=holes
        )

    def replies(
        self,
        timeout_s: float,
        why: Mapping[str, Silence | None] = MappingProxyType({}),
        *,
        late: frozenset[str] = frozenset(),
    ) -> Replies:
        """All that came. `why` may say of peers who are still open what is known of them.

        `late` are those whose answers to earlier pulls have come since.
        """
        unheard = NOT_NEEDED if self.enough else no_answer(timeout_s)
        silent = self.failed | {peer: why.get(peer) or unheard for peer in self.open}
        names = tuple(sorted(self.rows))
        rows = tuple(self.rows[name] for name in names)
        return Replies(names, rows, silent, self.gone, self.holes, self.steps, late)

    def _flaw(self, payload: Payload | bytes, step: int | None) -> Silence | None:
        """Why that is no vector as was asked for."""
        if self._key.is_newest and (step is None or not 0 <= step < NEWEST):
            return Silence(Reason.WRONG_STEP, f"says that its newest is of step {step}")
        if not isinstance(payload, np.ndarray) or payload.dtype != self._key.dtype:
            detail = f"sent {len(payload)} bytes that are no {self._key.dtype} vector"
            return Silence(Reason.WRONG_SIZE, detail)
        if payload.shape != (self._length,):
            detail = f"sent {payload.size} numbers instead of {self._length}"
            return Silence(Reason.WRONG_SIZE, detail)
        return self._kind.flaw(payload) if self._is_finite(payload) else NOT_FINITE


def copied(replies: Replies) -> Replies:
    """The same with rows that the next pull of their kind cannot write over."""
    rows = tuple(row.copy() for row in replies.rows)
    for row in rows:
        row.flags.writeable = False
    return replace(replies, rows=rows)


@dataclass(frozen=True)
class Together:
    """What a pull has heard in all its stages."""

    before: Heard
    now: Heard

    @property
    def rows(self) -> Mapping[str, Payload]:
        return {**self.before.rows, **self.now.rows}

    @property
    def steps(self) -> Mapping[str, int]:
        return {**self.before.steps, **self.now.steps}

    @property
    def gone(self) -> Mapping[str, int]:
        return {**self.before.gone, **self.now.gone}

    @property
    def failed(self) -> Mapping[str, Silence]:
        return {**self.before.failed, **self.now.failed}

    @property
    def open(self) -> Collection[str]:
        heard = {*self.now.rows, *self.now.failed}
        return [peer for peer in self.before.open if peer not in heard]
