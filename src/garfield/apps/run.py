"""What an application's loop is given: numbers, rules, and how one server's run joins vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from garfield.gars import Aggregator, Explained, Rule
from garfield.nodes.server import ReceivedRows, Server

Own = TypeVar("Own")

_NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True)
class Numbers:
    """How many there are of each, and how many of them may be faulty."""

    n_w: int
    f_w: int = 0
    n_ps: int = 1
    f_ps: int = 0
    synchronous: bool = True
    gradient_quorum: int = 0
    """How many gradients an asynchronous server waits for; 0 for n − f."""
    model_quorum: int = 0
    """How many models an asynchronous node waits for; 0 for n − f."""
    liars_w: int = 0
    """How many workers lie in this run, as far as its settings say."""

    @property
    def q_w(self) -> int:
        """How many gradients a server asks for."""
        return self.n_w if self.synchronous else self.gradient_quorum or self.n_w - self.f_w

    @property
    def q_ps(self) -> int:
        """How many models a node asks for."""
        return self.n_ps if self.synchronous else self.model_quorum or self.n_ps - self.f_ps


@dataclass(frozen=True)
class NoSettings:
    """The own settings of an application that needs none."""


@dataclass
class Run(Generic[Own]):
    """One server's run of an application: its rules, its quorums, its record."""

    steps: int
    numbers: Numbers
    gar: Rule
    model_gar: Rule
    own: Own = NoSettings()  # type: ignore[assignment]
    """The application's own settings."""
    after_step: Callable[[Server, Run[Any]], None] = lambda server, run: None
    server: Server | None = None
    """Whose run it is: rules that trust a node's own row get that server's."""
    explained: Explained | None = field(default=None, init=False)
    """Who was trusted with the last gradient."""
    joined: ReceivedRows | None = field(default=None, init=False)
    """The rows it was made of, until the server asks for the next; None if some had holes."""
    aggregation_s: float = field(default=0.0, init=False)
    _aggregators: dict[str, Aggregator] = field(default_factory=dict, init=False)
    _jumps: int = field(default=0, init=False)

    def join_gradients(self, gradients: ReceivedRows, mask: Any = None) -> Any:
        """The workers' gradients, by the run's rule; `mask` is true where a value arrived."""
        self.joined = gradients if mask is None else None
        found = self._join("gradient", gradients, self.gar, self.numbers.f_w, mask)
        self.explained = replace(found, vector=_NOTHING)  # the vector itself would live on for long
        return found.vector

    def join_models(self, models: ReceivedRows) -> Any:
        """The servers' models, by the run's rule for models."""
        return self._join("proposal", models, self.model_gar, self.numbers.f_ps).vector

    def join_aggregates(self, gradients: ReceivedRows, f: int) -> Any:
        """What servers made of gradients, in a contraction round, by the rule for models."""
        return self._join("aggregate", gradients, self.model_gar, f).vector

    def _join(
        self, kind: str, rows: ReceivedRows, rule: Rule, f: int, mask: Any = None
    ) -> Explained:
        started, server = time.perf_counter(), self.server
        self._forget_after_jumps()
        known = self._aggregators.get(kind)
        if known is None or known.n != len(rows):
            rng = None if server is None else server.rng
            known = self._aggregators[kind] = Aggregator(rule, len(rows), f, rng)
        own = None if server is None else server.own_row(kind)
        found = known.aggregate(rows, mask=mask, own=own, explain=True)
        self.aggregation_s += time.perf_counter() - started
        return found

    def _forget_after_jumps(self) -> None:
        """Who has taken over others' models has no use for what it remembers of its own past."""
        jumps = 0 if self.server is None else self.server.jumps
        if jumps != self._jumps:
            for aggregator in self._aggregators.values():
                aggregator.forget()
        self._jumps = jumps
