"""A liar: the honest node behind an outbox that says what its moves say.

It sees what all honest nodes have published, and may answer for steps that it has not reached.
The last move that covers a question decides; where none does, it says the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Answer, Gone, Key, NotYet, Payload, Ready
from tests.adversary.case import Move

Known = Callable[[str, int], Sequence[Payload]]
"""What honest nodes have published of a kind, at a step or else the last before it."""

LIES = (
    "truth", "reverse", "constant", "huge", "one", "little", "high", "low", "apart", "mimic",
    "stale", "nan", "short", "fit",
)  # fmt: skip
"""What liars may say: `high` and `low` are the ends of what honest nodes say, `apart` the one or
the other by the asker, `stale` the beginning of it all."""
TIMES = ("now", "never", "first", "inside", "late", "gone", "ahead", "behind")
"""When: `first` about steps that it has not reached, `inside` just before the time-out, `late` just
after it, `gone` never and with a claim of a step far ahead. `ahead` and `behind` are claims about
its newest model: far in the future, and as old as can be believed."""


class LyingOutbox(Outbox):
    """Keeps the truth, and says what its moves say."""

    def __init__(
        self,
        name: str,
        moves: Sequence[Move],
        known: Known,
        timeout_s: float,
        share: complex = 1.0,
    ) -> None:
        """`share` is the liar's of a false codeword, where there is a code."""
        super().__init__()
        self._share = share
        self.name, self.timeout_s, self._known = name, timeout_s, known
        self._moves = [move for move in moves if move.liar == name]
        self.spoke = 0
        """How often it did not just say the truth."""

    def answer(self, asker: str, key: Key) -> Answer:
        truth = super().answer(asker, key)
        step = self.step if key.is_newest else key.step
        covering = [each for each in self._moves if each.covers(asker, key.kind, step)]
        if asker == self.name or not covering:
            return truth
        self.spoke += 1
        return self._said(covering[-1], asker, key, step, truth)

    def _said(self, move: Move, asker: str, key: Key, step: int, truth: Answer) -> Answer:
        if move.when == "never":
            return NotYet()
        if move.when == "gone" and not key.is_newest:
            return Gone(step + 1000)
        early = move.when in ("first", "ahead", "behind")
        if not isinstance(truth, Ready) and not early:
            return truth
        vector = self._lie(move.what, asker, key, step, truth)
        if vector is None:
            return truth
        share = {"inside": 0.95, "late": 1.05}.get(move.when, 0.0)
        claims = {"ahead": step + 1000, "behind": key.round}
        claim = claims.get(move.when, step if key.is_newest else None)
        claim = claim if key.is_newest else None
        return Ready(vector, after_s=share * self.timeout_s, step=claim)

    def _lie(self, what: str, asker: str, key: Key, step: int, truth: Answer) -> Payload | None:
        """The vector that takes the truth's place; None where it knows of nothing to lie about."""
        honest = self._known(key.kind, step)
        if isinstance(truth, Ready):
            own = np.asarray(truth.payload, dtype=np.float64)
        elif len(honest):
            own = np.mean(honest, axis=0, dtype=np.float64)
        else:
            return None
        if what == "fit":
            halves = np.repeat([self._share.real, self._share.imag], len(own) // 2)
            return _frozen(own + 10 * np.resize(halves, len(own)), key)
        rows = np.asarray(honest if len(honest) else [own], dtype=np.float64)
        return _frozen(_told(what, own, rows, asker), key)


def _frozen(told: Payload, key: Key) -> Payload:
    told = told.astype(key.dtype)
    told.setflags(write=False)
    return told


def _told(what: str, own: Payload, rows: Payload, asker: str) -> Payload:
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    side = 1 if crc32(asker.encode()) % 2 else -1
    match what:
        case "reverse":
            return -10 * own
        case "constant":
            return np.full_like(own, 1000.0)
        case "huge":
            return np.full_like(own, -3e38)
        case "one":
            return np.where(np.arange(len(own)) == 0, mean + 50.0, mean)
        case "little":
            return mean - 1.5 * spread
        case "high":
            return rows.max(axis=0)
        case "low":
            return rows.min(axis=0)
        case "apart":
            return mean + side * (10.0 + rows.max(axis=0) - rows.min(axis=0))
        case "mimic":
            return rows[0].copy()
        case "stale":
            return np.zeros_like(own)
        case "nan":
            return np.full_like(own, np.nan)
        case "short":
            return own[:1]
    return own.copy()
