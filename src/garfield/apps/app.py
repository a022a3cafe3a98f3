"""What an application is: a server's loop, a kind of worker, and bounds on the numbers.

The loops use the methods of `Server` alone and hold no setting of their own;
`Run` carries the rules and quorums that a user chose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from garfield.adapters.contract import Adapter, Batch
from garfield.apps.options import Options
from garfield.core.errors import ConfigError
from garfield.core.registry import Registry
from garfield.gars import Explained, Rule
from garfield.nodes.server import ReceivedRows, Server
from garfield.nodes.worker import Worker

APPS: Registry[App] = Registry("an application")

_NOTHING = np.empty(0, np.float32)

Probe = Callable[[], tuple[Adapter, Batch]]
"""The model as every node starts with it, and some of the data: the same for all."""

Check = Callable[["Numbers", Rule, Rule, Options], None]
"""Raises BoundError or ConfigError for numbers that the rules cannot bear."""


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


@dataclass
class Run:
    """One server's run of an application: its rules, its quorums, its record."""

    steps: int
    numbers: Numbers
    gar: Rule
    model_gar: Rule
    contractions: int = 0
    """Contraction rounds a step, for peers whose data differ."""
    options: Options = field(default_factory=Options)
    """What this application alone needs to know."""
    after_step: Callable[[Server, Run], None] = lambda server, run: None
    explained: Explained | None = field(default=None, init=False)
    """Who was trusted with the last gradient."""
    aggregation_s: float = field(default=0.0, init=False)

    def join_gradients(self, gradients: ReceivedRows, mask: Any = None) -> Any:
        """The workers' gradients, by the run's rule; `mask` is true where a value arrived."""
        started = time.perf_counter()
        found = self.gar(gradients, self.numbers.f_w, mask=mask, explain=True)
        self.aggregation_s += time.perf_counter() - started
        self.explained = replace(found, vector=_NOTHING)  # the vector itself would live on for long
        return found.vector

    def join_models(self, models: ReceivedRows) -> Any:
        """The servers' models, by the run's rule for models."""
        started = time.perf_counter()
        model = self.model_gar(gradients=models, f=self.numbers.f_ps)
        self.aggregation_s += time.perf_counter() - started
        return model


@dataclass(frozen=True)
class App:
    """An application, by name."""

    name: str
    loop: Callable[[Server, Run], None]
    worker: type[Worker]
    several_servers: bool
    peers: bool
    """Every node is server and worker at once."""
    robust: bool
    check: Check
    summary: str
    server: type[Server] = Server
    options: tuple[str, ...] = ()
    """The fields of `Options` that it uses."""
    shared_data: bool = False
    """A worker is given the batches of all workers, in the order of their names, and its place."""
    momentum_at_server: bool = False
    """Workers send plain gradients, and the server's optimizer has the momentum."""
    joins: Callable[[Options, Numbers], str] | None = None
    """How it joins gradients, in words, where that is not by a rule that the user chooses."""
    worker_arguments: Callable[[Options, Numbers], dict[str, Any]] = lambda options, numbers: {}
    """What its workers are given besides what every worker is."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that mean something else here when they are not given."""
    settle: Callable[[Options, Probe], dict[str, Any]] = lambda options, probe: {}
    """Settings that are left to it, worked out from the model and the data before a run."""

    def __repr__(self) -> str:
        return f"<application {self.name}>"


def app(
    name: str,
    *,
    check: Check,
    worker: type[Worker] = Worker,
    several_servers: bool = False,
    peers: bool = False,
    robust: bool = True,
    **more: Any,
) -> Callable[[Callable[[Server, Run], None]], Callable[[Server, Run], None]]:
    """Register a server's loop as an application; its docstring's first line is the summary.

    `more` are further fields of `App`.
    """

    def register(loop: Callable[[Server, Run], None]) -> Callable[[Server, Run], None]:
        summary = (loop.__doc__ or "").partition("\n")[0]
        made = App(name, loop, worker, several_servers, peers, robust, check, summary, **more)
        APPS.add(name, made)
        return loop

    return register


def one_server(numbers: Numbers, gar: Rule, model_gar: Rule, options: Options) -> None:
    """A single server, trusted, and enough workers for the rule."""
    if numbers.n_ps != 1 or numbers.f_ps:
        raise ConfigError(f"This application has one trusted server, got {numbers.n_ps}.")
    gar.check(numbers.q_w, numbers.f_w)


def servers_and_workers(numbers: Numbers, gar: Rule, model_gar: Rule, options: Options) -> None:
    """Enough of both for the rows that each rule will really get."""
    gar.check(numbers.q_w, numbers.f_w)
    model_gar.check(numbers.q_ps, numbers.f_ps)
