"""A case: one small run and its adversary, as data: drawn, replayed, shrunk, written as JSON.

The adversary has a liar's moves, a network that decides how long each answer takes, and
the moment at which an honest node crashes and is started anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from garfield.apps.application import numbered
from garfield.apps.run import Numbers

ALL: tuple[str, ...] = ()
"""In place of some askers, or some kinds: all of them."""
FOREVER = 10**9


@dataclass(frozen=True)
class Move:
    """What a liar says, and when, to whom, about which kinds of vectors, in which steps."""

    liar: str
    what: str
    """One of `liar.LIES`."""
    when: str
    """One of `liar.TIMES`."""
    to: tuple[str, ...] = ALL
    kinds: tuple[str, ...] = ALL
    since: int = 0
    until: int = FOREVER
    every: int = 1
    """Only in every so manieth step."""

    def covers(self, asker: str, kind: str, step: int) -> bool:
        """Whether this is what the liar does there."""
        return (
            asker in (self.to or (asker,))
            and kind in (self.kinds or (kind,))
            and self.since <= step < self.until
            and step % self.every == 0
        )


@dataclass(frozen=True)
class Slow:
    """How long answers take, from these senders to these askers; the last that fits counts."""

    delay_s: float
    senders: tuple[str, ...] = ALL
    askers: tuple[str, ...] = ALL
    kinds: tuple[str, ...] = ALL
    since: int = 0
    until: int = FOREVER
    hashed: bool = False
    """Anything from 0 to `delay_s`, another one for each asker, sender and key."""

    def covers(self, asker: str, sender: str, kind: str, step: int) -> bool:
        """Whether that answer is one of these."""
        return (
            asker in (self.askers or (asker,))
            and sender in (self.senders or (sender,))
            and kind in (self.kinds or (kind,))
            and self.since <= step < self.until
        )


@dataclass(frozen=True)
class Crash:
    """An honest node that dies as it reaches a step, and is started anew.

    It knows nothing, or, where its server is trusted, what it has saved of an earlier step.
    """

    name: str
    step: int
    down_s: float
    saved: int = 0
    """The step that a server goes on from."""
    all_servers: bool = False
    """Whether all honest servers die at that step, and go on from what they have saved."""
    ahead: tuple[str, ...] = ()
    """Servers that have saved one step more: all were told to stop, and not in the same moment."""

    def saved_by(self, name: str) -> int:
        """The step that this server goes on from."""
        return self.saved + (name in self.ahead)

    def hits(self, name: str, servers: tuple[str, ...]) -> bool:
        """Whether that node dies."""
        return name == self.name or (self.all_servers and name in servers)


@dataclass(frozen=True)
class Case:
    """One run."""

    app: str
    gar: str
    model_gar: str = "median"
    n_w: int = 3
    f_w: int = 1
    n_ps: int = 1
    f_ps: int = 0
    asynchronous: bool = False
    steps: int = 6
    seed: int = 0
    moves: tuple[Move, ...] = ()
    slow: tuple[Slow, ...] = ()
    crash: Crash | None = None
    contractions: int = 0
    code: str = "repetition"
    redundancy: int = 0
    gather_every: int = 2
    timeout_s: float = 1.0
    give_up_s: float = 30.0

    @cached_property
    def peers(self) -> bool:
        """Whether every node is server and worker at once."""
        return self.app == "decentralized"

    @cached_property
    def workers(self) -> tuple[str, ...]:
        return numbered("node" if self.peers else "worker", self.n_w)

    @cached_property
    def servers(self) -> tuple[str, ...]:
        return self.workers if self.peers else numbered("server", self.n_ps)

    @cached_property
    def liars(self) -> tuple[str, ...]:
        """The last f of each kind."""
        lying = self.workers[self.n_w - self.f_w :]
        return lying if self.peers else lying + self.servers[self.n_ps - self.f_ps :]

    @cached_property
    def honest(self) -> tuple[str, ...]:
        every = dict.fromkeys((*self.servers, *self.workers))
        return tuple(name for name in every if name not in self.liars)

    @cached_property
    def numbers(self) -> Numbers:
        """What the application's loop is told."""
        n_ps, f_ps = (self.n_w, self.f_w) if self.peers else (self.n_ps, self.f_ps)
        return Numbers(self.n_w, self.f_w, n_ps, f_ps, synchronous=not self.asynchronous)

    @cached_property
    def trusted(self) -> bool:
        """Whether there is one server, whom nobody doubts."""
        return len(self.servers) == 1

    def without_liars(self) -> Case:
        """The same run and network, in which those who would lie say the truth, at once."""
        return replace(self, moves=(), crash=None)

    def to_json(self) -> str:
        """As one line."""
        plain = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The reverse of `to_json`."""
        given = json.loads(text)
        made: dict[str, Any] = dict(given)
        made["moves"] = tuple(Move(**_tuples(each)) for each in given.get("moves", ()))
        made["slow"] = tuple(Slow(**_tuples(each)) for each in given.get("slow", ()))
        crash = given.get("crash")
        made["crash"] = (
            Crash(**{**crash, "ahead": tuple(crash.get("ahead", ()))}) if crash else None
        )
        return cls(**made)


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
