"""Crash-tolerant: replicated servers, averaging, a primary (thesis 3.6.2).

Every server averages the gradients of all workers that answer; workers take
the model from the primary alone, and from the next server once the primary has
been silent for a time-out. The new primary's model may be older than that of
the crashed one; learning converges all the same. Lies are not survived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from garfield.adapters.contract import Adapter
from garfield.apps.application import SeveralServers, application
from garfield.apps.run import NoSettings, Run
from garfield.core.errors import ConfigError, QuorumError
from garfield.nodes.node import Behind, Newest
from garfield.nodes.quorum import Quorum
from garfield.nodes.server import Server, ServerArguments
from garfield.nodes.worker import Data, Worker, WorkerArguments
from garfield.transport.contract import Key, Payload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from garfield.apps.settings import Settings


_ONE = Quorum.of_first(1, 1, 0)


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
                return self.join(self.gather([server], key, length=length, quorum=_ONE).rows)
            except Behind:
                found = self.newest(
                    [server], "model", length=length, beyond=self.step, count=1, f=0
                )
                if found is not None:
                    self.step = found.step
                    return self.join(found.rows)
            except QuorumError:
                if self.clock() >= deadline:
                    raise
                self.primary = (self.primary + 1) % len(self.servers)


class TrustingServer(Server):
    """Takes over the model of any other server: nobody lies."""

    def _newest_of(self, others: Sequence[str], beyond: int) -> Newest | None:
        length = self.model.size + self.model.tail
        return self.newest(others, "model", length=length, beyond=beyond, count=1, f=0)


class CrashTolerant(SeveralServers[NoSettings]):
    """Servers may crash; nobody lies."""

    worker_class = PrimaryWorker

    def rule_name(self, settings: Settings) -> str:
        return "average"

    def server(self, model: Adapter, **arguments: Unpack[ServerArguments]) -> Server:
        return TrustingServer(model, **arguments)

    def doubted(self, settings: Settings) -> int:
        return 0  # they crash, and do not lie

    def cautions(self, settings: Settings) -> Iterable[str]:
        return ()  # lies are not borne anyway

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
