"""LiuBei: servers and workers may lie, at hardly more traffic than with one trusted server.

    scatter   a worker pulls the model of one server and computes its gradient there, if the
              model passes two tests; else it tries the next server
    gather    every T steps, servers pull each other's models and take their median; workers
              pull those of all servers and take theirs

Servers pull the gradients of all workers in every step. So a step has the rounds of plain
training, two, and a gather one more; of messages, a worker pulls 1 model and not n_ps.

The tests (garfield.filters): the distance of the pulled model from the worker's own estimate,
which costs nothing, then the growth of its gradient, for which a backward pass is needed that a
refusal wastes. The second refuses a share f_ps / n_ps of honest models, by construction. A
worker that has refused all servers, or does not know the step before (it has just been started,
or was left behind), pulls all models and takes their median, as in a gather. So does one that was
not asked for its last gradient by more than f_ps servers: where nobody honest is known to be at
that step, a liar with models of steps to come would make it run ahead, until honest servers find
the gradients gone that they need.

Assumed where the paper leaves a choice: the network is synchronous, a silent server costs a
time-out until patience with it ends; n_ps ≥ 3 f_ps + 1 (the authors run 4 servers with 1 liar);
the order in which a worker asks servers is drawn from (seed, name, step); servers may drift for
T steps only if all steps are plain SGD, so momentum and weight decay are refused; T comes from
the smoothness of the model at its start (garfield.filters.smoothness), the same at every node,
or from gather_every. Any rule may join gradients, by default Multi-Krum: the library's own default
rests on momentum. The models filter's constant is that of MDA.

El Mhamdi, Guerraoui, Guirguis: "Fast Machine Learning with Byzantine Workers and Servers", 2019.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from garfield.adapters.contract import Adapter
from garfield.apps.application import Probe, SeveralServers, WorkerPlace, application
from garfield.apps.own_parts import SGD_NAME
from garfield.apps.run import Run
from garfield.core.errors import BoundError, ConfigError
from garfield.filters import Coefficients, coefficient, farthest, period, smoothness
from garfield.nodes.server import Server
from garfield.nodes.worker import Data, Worker, WorkerArguments
from garfield.transport.contract import Key, Payload, first

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from garfield.apps.groups import Learning
    from garfield.apps.settings import Settings


@dataclass(frozen=True)
class LiuBeiSettings:
    """Settings of liubei alone."""

    gather_every: int = 0
    """Steps between gathers; 0 to have it estimated from the model's smoothness."""


@dataclass(frozen=True)
class Scattering:
    """What a worker must know to judge a model."""

    every: int
    """Steps from one gather to the next."""
    learning: Learning
    seed: int
    n_w: int
    f_w: int


@dataclass(frozen=True)
class _Taken:
    """A step that a worker has done: where it was, and what it computed there."""

    step: int
    model: Payload
    gradient: Payload


class ScatteredWorker(Worker):
    """Follows one server at a time, and believes it within limits."""

    follows_back = False  # between gathers servers go on without each other

    def __init__(
        self,
        model: Any,
        data: Data,
        *,
        scattering: Scattering,
        **worker: Unpack[WorkerArguments],
    ) -> None:
        super().__init__(model, data, **worker)
        self.tested: Counter[str] = Counter()
        """How many models of each server were judged."""
        self.rejected: Counter[str] = Counter()
        """How many of them were refused."""
        self._scattering = scattering
        self._coefficients = Coefficients(n_ps=len(self.servers), f_ps=self.f_ps)
        self._before: _Taken | None = None
        self._chosen = self._judged = self._gradient[:0]
        self._judged_at = -1
        self._gathered_at = 0
        self._moved = 0.0  # γ‖g‖ at the last gather

    def fetch_model(self) -> tuple[Payload, Payload]:
        """One server's model that passes the tests, or the median of all of them."""
        due = self.step % self._scattering.every == 0
        known = self._knows_step_before() and self._is_followed()
        gathers = due or not known or not self._order()
        chosen = None if gathers else self._scattered()
        self._chosen = self._gathered() if chosen is None else chosen
        return self._chosen[: self.model.size], self._chosen[self.model.size :]

    def gradient(self) -> Payload:
        """Compute it where models were gathered; a scattered one was judged by its gradient."""
        gathered = self._gathered_at == self.step
        if gathered:
            self.differentiate()
            if self._knows_step_before():
                self._coefficients.accept(self._growth())
        mine = self.hand_over()
        size = self.model.size
        self._before = _Taken(self.step, self._chosen[:size], mine[:size])
        if gathered:
            self._moved = self._step_length()
        return mine

    def event_fields(self) -> dict[str, Any]:
        counts = {name: [self.tested[name], self.rejected[name]] for name in sorted(self.tested)}
        return {"filters": counts} if counts else {}

    def _knows_step_before(self) -> bool:
        return self._before is not None and self._before.step == self.step - 1

    def _is_followed(self) -> bool:
        """Whether somebody honest was at the step before: more ask for that than may lie."""
        asked = (self.outbox.asked.get(server, -1) for server in self.servers)
        return sum(step >= self.step - 1 for step in asked) > self.f_ps

    def _scattered(self) -> Payload | None:
        """The first server's model that passes; None if none did."""
        for server in self._order():
            model = self._asked(server)
            if model is None:
                continue
            self.tested[server] += 1
            if self._passes(model, server):
                return self._judged
            self.rejected[server] += 1
        return None

    def _gathered(self) -> Payload:
        """The median of all servers' models."""
        models = self.gather_models()
        self._gathered_at = self.step
        return np.concatenate(self.join(models))

    def _passes(self, model: Payload, server: str) -> bool:
        before, size, s = self._before, self.model.size, self._scattering
        assert before is not None  # else this is a gather
        expected = before.model - np.float32(s.learning.rate(before.step)) * before.gradient
        bound = farthest(
            self._moved, since=self.step - 1 - self._gathered_at, period=s.every,
            n_w=s.n_w, f_w=s.f_w,
        )  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):  # a lie may be huge
            distance = np.linalg.norm(model[:size] - expected)
        if not distance < bound:
            return False
        self._differentiate_once(model)
        return self._coefficients.accept(self._growth(), server)

    def _differentiate_once(self, model: Payload) -> None:
        """Honest servers mostly hold the same model: one backward pass judges them all."""
        if self._judged_at == self.step and np.array_equal(self._judged, model):
            return
        self._judged, self._judged_at = model.copy(), self.step  # pulls use their memory again
        self.model.write(self._judged)
        self.differentiate()

    def _asked(self, server: str) -> Payload | None:
        """One server's model of this step, if it comes in time."""
        key, length = Key("model", self.step), len(self._gradient)
        started, wait_s = self.clock(), self._patience.credit_s(server)
        found = self.transport.pull(
            [server], key, length=length, until=first(1), timeout_s=wait_s,
            stall_s=self.waits.timeout_s / 2,
        )  # fmt: skip
        waited_s = self.clock() - started
        self.account.note(found.silent, waited_s)
        if found.rows:
            self._patience.answered(server, waited_s)
            return found.rows[0]
        self._patience.missed(server, waited_s, in_full=False)
        return None

    def _order(self) -> Sequence[str]:
        """The order in which servers are asked at this step.

        Nobody where there is no patience left with more than f_ps of them: those who are still
        asked might be liars for the greater part.
        """
        asked = [name for name in self.servers if self._patience.credit_s(name) > 0]
        if len(asked) < len(self.servers) - self.f_ps:
            return []
        seed = (self._scattering.seed, crc32(self.name.encode()), self.step)
        return [asked[i] for i in np.random.default_rng(seed).permutation(len(asked))]

    def _growth(self) -> float:
        assert self._before is not None
        gradient = self._gradient[: self.model.size]
        return coefficient(gradient, self._before.gradient, self._step_length())

    def _step_length(self) -> float:
        """γ‖g‖ of the last step taken."""
        assert self._before is not None
        rate = self._scattering.learning.rate(self._before.step)
        return rate * float(np.linalg.norm(self._before.gradient))


class LiuBei(SeveralServers[LiuBeiSettings]):
    """Servers that gather every few steps, and workers that test the models in between."""

    own = LiuBeiSettings
    defaults: Mapping[str, Any] = MappingProxyType({"gar": "multi-krum", "momentum": 0.0})

    def check(self, settings: Settings) -> None:
        every, numbers = self.own_of(settings).gather_every, settings.numbers
        if settings.rounds.asynchronous:
            raise ConfigError("liubei is synchronous. Choose guanyu for a network without bounds.")
        if settings.learning.momentum or settings.learning.weight_decay:
            raise ConfigError(
                f"liubei's filters assume plain SGD: set momentum and weight_decay to 0, got "
                f"{settings.learning.momentum:g} and {settings.learning.weight_decay:g}."
            )
        if settings.learning.optimizer != SGD_NAME:
            raise ConfigError(
                f"liubei's filters assume plain SGD: leave out --optimizer "
                f"{settings.learning.optimizer}, or choose another application."
            )
        if every < 0:
            raise ConfigError(f"gather_every must be at least 0, got {every}.")
        if numbers.n_ps < 3 * numbers.f_ps + 1:
            raise BoundError(
                f"liubei needs n >= {3 * numbers.f_ps + 1} servers (3f + 1) to tolerate "
                f"f={numbers.f_ps} of them, got n={numbers.n_ps}. Add servers or lower f."
            )
        super().check(settings)

    def settled(self, settings: Settings, probe: Probe) -> Settings:
        """Work out T, the steps between gathers, where it was not given."""
        if self.own_of(settings).gather_every:
            return settings
        adapter, batch = probe()
        start, gradient = np.empty((2, adapter.size + adapter.tail), np.float32)
        adapter.read(start)

        def at(body: Payload) -> Payload:
            adapter.write(np.concatenate([body, start[adapter.size :]]))
            adapter.gradient(batch, gradient)
            return gradient[: adapter.size]

        rate = settings.learning.rate(0)
        every = period(smoothness(at, start[: adapter.size], rate), rate)
        return settings.updated(gather_every=every)

    def worker(
        self, place: WorkerPlace, model: Adapter, **arguments: Unpack[WorkerArguments]
    ) -> Worker:
        settings = place.settings
        every, numbers = self.own_of(settings).gather_every, settings.numbers
        told = Scattering(every, settings.learning, settings.seed, numbers.n_w, numbers.f_w)
        return ScatteredWorker(model, place.batches_of(place.name), scattering=told, **arguments)


@application("liubei", LiuBei)
def liubei(ps: Server, run: Run[LiuBeiSettings]) -> None:
    """Servers meet now and then, workers test one model a step: both may lie, little traffic."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.q_w)
        ps.update_model(run.join_gradients(gradients))
        if ps.step % run.own.gather_every == 0:
            models = ps.get_models(run.numbers.q_ps)
            ps.write_model(run.join_models(models))
        run.after_step(ps, run)
