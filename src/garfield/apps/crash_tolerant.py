"""Crash-tolerant: replicated servers, averaging, a primary (thesis 3.6.2).

Every server averages the gradients of all workers that answer; workers take
the model from the primary alone, and from the next server once the primary has
been silent for a time-out. The new primary's model may be older than that of
the crashed one; learning converges all the same. Lies are not survived.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from garfield.apps.application import NoSettings, Run, SeveralServers, application
from garfield.core.errors import ConfigError, QuorumError
from garfield.nodes.server import Server
from garfield.nodes.worker import Data, Worker, WorkerArguments
from garfield.transport.contract import Key, Payload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from garfield.apps.settings import Settings


class PrimaryWorker(Worker):
    """Follows one server, and the next when that one falls silent."""

    def __init__(self, model: Any, data: Data, **worker: Unpack[WorkerArguments]) -> None:
        super().__init__(model, data, **worker)
        self.primary = 0
        self._in_all = self.waits
        self.waits = replace(self.waits, give_up_s=self.waits.timeout_s)

    def fetch_model(self) -> tuple[Payload, Payload]:
        key, length = Key("model", self.step), self.model.size + self.model.tail
        deadline = self.clock() + self._in_all.give_up_s
        while True:
            server = self.servers[self.primary]
            try:
                return self.join(self.gather([server], key, length=length, quorum=1, f=0).rows)
            except QuorumError:
                if self.clock() >= deadline:
                    raise
                self.primary = (self.primary + 1) % len(self.servers)


class CrashTolerant(SeveralServers[NoSettings]):
    """Servers may crash; nobody lies."""

    worker_class = PrimaryWorker

    def rule_name(self, settings: Settings) -> str:
        return "average"

    def check(self, settings: Settings) -> None:
        if settings.rounds.asynchronous:
            raise ConfigError("crash-tolerant assumes synchrony: a time-out means a crash.")
        numbers = settings.numbers
        if numbers.n_ps < numbers.f_ps + 1:
            raise ConfigError(
                f"crash-tolerant needs {numbers.f_ps + 1} servers to survive {numbers.f_ps} "
                f"crashes, got {numbers.n_ps}."
            )


@application("crash-tolerant", CrashTolerant)
def crash_tolerant(ps: Server, run: Run[NoSettings]) -> None:
    """Replicated servers, averaging, fail-over: survives crashes, not lies."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.n_w)
        ps.update_model(run.join_gradients(gradients))
        run.after_step(ps, run)
