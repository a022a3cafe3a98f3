"""Quorums: when a round may go on. Pure decisions, of who was heard and for how long was waited.

Silence is no evidence: a liar can make an honest peer late, by withholding from it alone in
the phase before. So time may cost speed, never safety. Of n peers, f may be faulty:

    where nobody is trusted     a rule gets needs(f) rows at least, no fewer than n − f, and is
                                told all of f; s silent peers cost nothing but the wait
    where the server is         n − s rows will do, too, if each of the s ≤ f missing peers has
                                been waited for in full: then a rule may be told fewer faults
    asynchronous                the first q rows, whoever sends them

Who has proved to be faulty (`Reason.proof`) is one of the f that cannot be among the others: k of
these, and needs(f − k) rows bear the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from garfield.core.errors import ConfigError
from garfield.core.silence import Reason, Silence
from garfield.nodes.patience import Patience

Needs: TypeAlias = Callable[[int], int]
"""How many rows a rule needs to bear so many faults."""


@dataclass(frozen=True)
class Quorum:
    """How many rows a round waits for, and with how few it goes on."""

    wanted: int
    """Nothing is waited for beyond these: all n, or the first q."""
    safe: tuple[int, ...]
    """Enough for all faults there may be, when 0, 1, … f peers have proved to be faulty: others
    are waited for only while there is patience with them."""
    f: int
    trusted: bool = False
    """Whether n − f rows are enough if everybody else was waited for in full."""
    leads: bool = False
    """Whether nobody honest can be past the step: whoever says to be so has proved to be faulty."""
    doubt: float = 1.0
    """After how many time-outs to look for what is newer, though no more than f say that there is
    any; infinity where that is of no use."""
    looks_back_after_s: float = inf
    """How long no more rows may come than may be lies, until peers are asked if they have gone
    back."""

    @classmethod
    def of_all(
        cls, n: int, f: int, *, needs: Needs | None, trusted: bool = False, leads: bool = False
    ) -> Quorum:
        """All n, in a synchronous round; if nobody knows how many rows bear f faults, it is all."""
        _possible(n, n)
        enough = needs or (lambda f: n)
        safe = tuple(min(n, max(enough(f - k), n - f)) for k in range(f + 1))
        return cls(n, safe, f, trusted, leads)

    @classmethod
    def of_first(cls, q: int, n: int, f: int) -> Quorum:
        """The first q of n, in an asynchronous round."""
        _possible(q, n)
        return cls(q, (q,) * (f + 1), f)

    def proven(self, silent: Mapping[str, Silence]) -> int:
        """How many of those who were not heard have proved to be faulty."""
        past = [why for why in silent.values() if why.reason is Reason.GONE]
        lies = sum(why.reason.proof for why in silent.values())
        return lies + len(past) if self.leads and len(past) <= self.f else lies

    def safe_without(self, proven: int) -> int:
        """How many rows are enough where so many peers have proved to be faulty."""
        return self.safe[min(proven, self.f)]

    def bare_without(self, proven: int) -> int:
        """How many are, if everybody else was waited for in full."""
        safe = self.safe_without(proven)
        return min(safe, max(1, self.wanted - self.f)) if self.trusted else safe

    def left_behind(self, heard: int, gone: int, proven: int) -> bool:
        """Whether so many peers are past a step that nobody else may be left to be waited for.

        More than f of them; or all who are honest have answered, with their rows or with this.
        """
        nobody_left = gone > 0 and heard + gone >= self.safe_without(proven)
        return gone > self.f or (nobody_left and not self.trusted)


def _possible(quorum: int, n: int) -> None:
    if not 1 <= quorum <= n:
        raise ConfigError(f"A quorum of {quorum} is impossible with {n} peers.")


@dataclass(frozen=True)
class Progress:
    """How far a round has come, at one moment."""

    heard: int
    open: Collection[str]
    """Who may still answer."""
    proven: int = 0
    """How many have proved to be faulty."""
    safe_since_s: float | None = None
    """How long ago enough rows for all f faults were in; None if they are not."""
    bare_since_s: float | None = None
    gone_since_s: float | None = None
    """How long ago so many were gone that this node may have been left behind."""
    surely_gone: bool = False
    """Whether they are more than f."""
    since_s: float = 0.0
    """How long ago it began."""

    def looks_back(self, quorum: Quorum) -> bool:
        """Whether all who must be honest are still to be heard: they may have gone back."""
        none = self.safe_since_s is None and self.gone_since_s is None and self.bare_since_s is None
        asks = quorum.looks_back_after_s < inf and bool(self.open)
        return asks and none and self.heard <= quorum.f


def left_s(quorum: Quorum, progress: Progress, patience: Patience) -> float:
    """How many seconds more to wait: 0 to go on or to give up, infinity if there is no choice."""
    if progress.heard >= quorum.wanted:
        return 0.0
    if progress.safe_since_s is not None:
        credit_s = max(map(patience.credit_s, progress.open), default=0.0)
        return max(0.0, credit_s - progress.safe_since_s)
    if progress.gone_since_s is not None:
        hopeless = progress.heard + len(progress.open) < quorum.bare_without(progress.proven)
        wait_s = patience.timeout_s * (1.0 if progress.surely_gone else quorum.doubt)
        return 0.0 if hopeless else max(0.0, wait_s - progress.gone_since_s)
    if progress.bare_since_s is not None:
        if all(map(patience.is_charged, progress.open)):
            return 0.0
        return max(0.0, patience.timeout_s - progress.bare_since_s)
    if progress.looks_back(quorum):
        return max(0.0, quorum.looks_back_after_s - progress.since_s)
    return inf
