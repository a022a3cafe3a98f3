"""Server: keeps the model, asks for gradients, takes steps.

The methods are those of the thesis's listings; a round reads from top to
bottom as in `apps/msmw.py`. What a server publishes: ("model", t) when it asks
for gradients of step t, ("proposal", t + 1) when it has taken its step and asks
for the others' models, and ("aggregate", t, r) in contraction rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.adapters.adapt import adapt
from garfield.adapters.contract import Batch
from garfield.adapters.user_data import evaluation_batches
from garfield.core.errors import ConfigError, DivergedError, QuorumError
from garfield.core.silence import Reason
from garfield.gars import Rule, init
from garfield.kernels.finite import all_finite
from garfield.nodes.node import Behind, Gathered, Newest, Node, NodeArguments
from garfield.nodes.quorum import Needs, Quorum
from garfield.nodes.tails import bodies, median_tail
from garfield.nodes.waiting import SERVERS, WORKERS
from garfield.nodes.worker import Worker
from garfield.transport.contract import AGGREGATE, PROPOSAL, Key, Payload, Transport

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

ReceivedRows = list[Payload | None]


class ServerArguments(NodeArguments, total=False):
    """What every server takes by name: for the constructors of special ones."""

    transport: Required[Transport]
    workers: Required[Sequence[str]]
    servers: Sequence[str]
    f_w: int
    f_ps: int
    gar: Rule | None
    model_gar: Rule | None
    loss: Any
    scheduler: Any
    test: Iterable[Batch] | tuple[Any, Any]
    worker: Worker | None


class Server(Node):
    """Owns a model and its optimizer."""

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        transport: Transport,
        workers: Sequence[str],
        servers: Sequence[str] = (),
        f_w: int = 0,
        f_ps: int = 0,
        gar: Rule | None = None,
        model_gar: Rule | None = None,
        loss: Any = None,
        scheduler: Any = None,
        test: Iterable[Batch] | tuple[Any, Any] = (),
        worker: Worker | None = None,
        **node: Unpack[NodeArguments],
    ) -> None:
        """`model` is a torch.nn.Module or a Keras model (or an adapter), `optimizer` one for it.

        `workers` and `servers` are names that the transport knows; f_w and f_ps of them may be
        faulty. `gar` and `model_gar` are the rules that join their vectors: where there are
        several servers, rounds go on without silent peers only if the rule bears f faults among
        the others, so without it they wait for all. `test` is iterated by compute_accuracy. The
        rest goes to `Node`.
        """
        super().__init__(transport, **node)
        self.model = adapt(model, loss=loss, optimizer=optimizer, scheduler=scheduler)
        self.workers = tuple(workers)
        self.servers = tuple(servers) or (self.name,)
        self.f_w, self.f_ps, self.test = f_w, f_ps, evaluation_batches(test)
        self.gar, self.model_gar = gar, model_gar
        self.resumed = False
        """Whether it began at a checkpoint, and no worker has been heard since: they may be further
        on, and come back with all servers that have gone back (`standing.py`)."""
        self.jumps = 0
        """How often it has taken over its peers' models and step."""
        self.outbox.audience = self._may_ask
        self.lists = {SERVERS: self.servers}
        if self.workers != self.servers:
            self.lists[WORKERS] = self.workers
        self.worker = worker
        """A node that is both has one, which computes its gradient before others are asked."""
        self.step = 0
        self.latest_aggr_grad: Payload | None = None
        self.heard: Gathered | None = None
        """The last gradients gathered: who sent them, and who was silent."""
        self._round = 0
        self._is_newer = False
        """Whether its model is that of the next step: all that others still had."""
        self._total: int | None = None
        """How many steps there are, if that is known."""
        self._tail: Payload | None = None
        self._length = self.model.size + self.model.tail
        self._lent: dict[str, ReceivedRows] = {}

    # -- the listings' methods ----------------------------------------------------------

    def get_gradients(self, t: int, q: int) -> ReceivedRows:
        """Gradients of step t from q workers: all of them, None for the silent, if q is all.

        They are gone at the next call: their memory may be the senders'.
        """
        self.heard = self.gather_gradients(t, q)
        self._tail = median_tail(self.heard.rows, self.model.size)
        return self._lend("gradient", bodies(self.heard.rows, self.model.size))

    def update_model(self, gradient: Any) -> None:
        """Take an optimizer step along an aggregated gradient."""
        if self._is_newer:
            self._is_newer = False  # others have taken this step already, with its tail
        else:
            self.model.step(np.asarray(gradient, dtype=np.float32))
            self._replace_tail()
        self.step += 1

    def get_models(self, q: int) -> ReceivedRows:
        """Models of q servers after their step, this one's included."""
        key = Key("proposal", self.step)
        self._recall(key.kind)
        self._publish(key)
        found = self._proposals(key, q)
        self._tail = median_tail(found, self.model.size)
        return self._lend(key.kind, bodies(found, self.model.size))

    def write_model(self, model: Any) -> None:
        """Replace the parameters: by what servers agreed on, say."""
        self.model.write_body(np.asarray(model, dtype=np.float32).reshape(self.model.size))
        self._replace_tail()

    def get_aggr_grads(self, q: int) -> ReceivedRows:
        """`latest_aggr_grad` of q servers: one contraction round."""
        if self.latest_aggr_grad is None:
            raise ConfigError("Set latest_aggr_grad before asking for the others'.")
        key = Key("aggregate", self.step, self._round)
        self._round += 1
        mine = np.asarray(self.latest_aggr_grad, dtype=np.float32)
        self.outbox.publish(key, mine)
        try:
            return self._gather_from_servers(key, len(mine), q)
        except Behind:
            return [mine] * q  # peers are past this step: get_models will catch up with them

    def compute_accuracy(self) -> float:
        """Share of right predictions on the test set; the score, if it has another metric."""
        return self.evaluate()[0]

    def evaluate(self) -> tuple[float, float]:
        """The model's score on the test set (accuracy, as a rule), and the mean loss there."""
        return self.model.evaluate(self.test)

    # -- around them ------------------------------------------------------------------------

    def steps(self, total: int) -> Iterator[int]:
        """The steps still to be done, those that a rejoining server skips left out."""
        self._total = total
        while self.step < total:
            yield self.step
        self._publish(Key("model", self.step))  # for those who are further behind

    def own_row(self, kind: str) -> Payload | None:
        """What this node itself has published of the rows it gathered last, without their tail."""
        of_round = self._round - 1 if kind == AGGREGATE.name else 0
        own = self.outbox.own(Key(kind, self.step, of_round))
        return None if own is None else own[: self.model.size]

    def gather_gradients(
        self,
        t: int,
        q: int,
        *,
        kind: str = "gradient",
        numbers: int = 1,
        needs: Needs | None = None,
    ) -> Gathered:
        """What q workers send of that kind at step t, `numbers` of them for each of the model's.

        How many rows bear how many faults is said by `needs`, or else by the rule.
        """
        self.step, self._round = max(self.step, t), 0
        self._recall("gradient")
        if self.heard is not None:
            self.heard.rows.clear()
        length, n = numbers * self._length, len(self.workers)
        quorum = self._quorum(q, n, self.f_w, needs or _needs(self.gar))
        if self.resumed and len(self.servers) > 1:
            self._propose_again()
        self._publish_model()
        give_up_at = self.clock() + self.waits.give_up_s
        while True:
            key = Key(kind, self.step)
            try:
                found = self.gather(self.workers, key, length=length, quorum=quorum)
                self.resumed = False
                return found
            except Behind:
                self.resumed = self.resumed and self.clock() < give_up_at
                last = None if self._total is None else self._total - 1  # no gradients after that
                if self.catch_up(beyond=self.step, at_most=last):
                    if self._is_newer:  # nothing is left to be learnt, and who to ask may be gone
                        names, row = tuple(sorted(self.workers)[:q]), np.zeros(length, np.float32)
                        return Gathered(names, [row] * len(names), silent={})
                    self._publish_model()
            except QuorumError as failure:
                self._tell_divergence(failure)
                raise

    def catch_up(self, *, beyond: int, at_most: int | None = None) -> bool:
        """Take over the newest models of other servers, and their step: never its own, stale one.

        `beyond` is the last step whose joined model it has itself, `at_most` the last that it may
        go to. Says whether there was anything newer, where peers too few to be sure of it have
        said so.

        Liars could otherwise roll everybody back, by keeping some behind.
        """
        others = [name for name in self.servers if name != self.name]
        if len(others) <= self.f_ps:
            if self.in_doubt:
                self._doubt.is_useless()
                return False
            raise QuorumError(
                f"{self.name} is at step {self.step} and its workers are past it, and no other "
                "server is left to learn the model from. Resume from a checkpoint."
            )
        found = self._newest_of(others, beyond)
        if found is None:
            return False
        self.model.write(self._joined(found.rows))
        step = found.step if at_most is None else max(self.step, min(found.step, at_most))
        self._is_newer = found.step > step
        self.model.skip(found.step - self.step)
        self.step = step
        self.outbox.leave_out(Key("proposal", step))  # it has none: it took what others joined
        self.jumps += 1
        return True

    def _newest_of(self, others: Sequence[str], beyond: int) -> Newest | None:
        """The newest models of so many other servers that f_ps liars among them are borne."""
        needs = _needs(self.model_gar)
        return self.newest(
            others, "model", length=self._length, beyond=beyond, f=self.f_ps,
            count=len(others) if needs is None else needs(self.f_ps),
            unsure=self.resumed,
        )  # fmt: skip

    def _joined(self, models: Sequence[Payload]) -> Payload:
        """Models of other servers as one, by the run's rule; by their median, if there is none."""
        size, whole = self.model.size, self.read_model()
        if self.model_gar is None or len(models) == 1:
            whole[:size] = median_tail([row[:size] for row in models], 0)
        else:
            rule = init(self.model_gar, len(models), self.f_ps, self.rng)
            whole[:size] = rule.aggregate(bodies(models, size))
        whole[size:] = median_tail(models, size)
        return whole

    def _proposals(self, key: Key, q: int) -> ReceivedRows:
        """Other servers' models after their step, or as often what it has caught up with."""
        while True:
            try:
                return self._gather_from_servers(key, self._length, q)
            except Behind:
                if self.catch_up(beyond=self.step - 1):  # what others joined of this step is news
                    return [self.read_model()] * q

    def _gather_from_servers(self, key: Key, length: int, q: int) -> ReceivedRows:
        quorum = self._quorum(q, len(self.servers), self.f_ps, _needs(self.model_gar))
        return self.gather(self.servers, key, length=length, quorum=quorum).rows

    def _quorum(self, q: int, n: int, f: int, needs: Needs | None) -> Quorum:
        if q < n:
            return Quorum.of_first(q, n, f)
        alone = len(self.servers) == 1
        return Quorum.of_all(q, f, needs=needs, trusted=alone, leads=alone)

    def _may_ask(self, asker: str, kind: str) -> bool:
        """Servers may ask for all; workers for models, not for what servers tell each other."""
        of_servers = kind in (PROPOSAL.name, AGGREGATE.name)
        return asker in self.servers or (asker in self.workers and not of_servers)

    def _tell_divergence(self, failure: QuorumError) -> None:
        """Blame the model if more workers than may lie have no finite gradient."""
        silent = failure.silent.items()
        lost = [name for name, silence in silent if silence.reason is Reason.NOT_FINITE]
        if len(lost) > self.f_w:
            raise DivergedError(
                f"{self.name}: {len(lost)} of {len(self.workers)} workers have no finite gradient "
                f"at step {self.step}: the model has diverged. Use a robust rule, or lower the "
                "learning rate."
            ) from failure

    def _propose_again(self) -> None:
        """Offer the model that it goes on from as its proposal, which is forgotten.

        Servers that were stopped a step before it may wait for that. A joined model lies between
        honest proposals, so it moves nobody further than one of them.
        """
        proposal = Key("proposal", self.step)
        self.outbox.keep_longer(proposal)  # workers may let it propose the next one at once
        self._publish(proposal)

    def _publish_model(self) -> None:
        model = self._publish(Key("model", self.step))
        if self.worker is not None:
            self.worker.compute(self.step, model)

    def _publish(self, key: Key) -> Payload:
        vector = self.read_model()
        if not all_finite(vector):
            raise DivergedError(
                f"{self.name}: the model is not finite at step {self.step}. Use a robust rule, "
                "or lower the learning rate."
            )
        self.outbox.publish(key, vector, copy=False)
        return vector

    def _replace_tail(self) -> None:
        if self._tail is not None and len(self._tail):
            self.model.write_tail(self._tail)

    def _lend(self, kind: str, rows: ReceivedRows) -> ReceivedRows:
        self._lent[kind] = rows
        return rows

    def _recall(self, kind: str) -> None:
        """Let go of the last rows, q vectors of them, also in the list that a caller holds."""
        self._lent.pop(kind, []).clear()

    def read_model(self) -> Payload:
        """The model as a vector of its own."""
        vector = np.empty(self._length, np.float32)
        self.model.read(vector)
        return vector


def _needs(rule: Rule | None) -> Needs | None:
    """How many rows bear so many faults; None if nobody knows."""
    return None if rule is None else rule.needs


def contract(
    server: Server, gradient: Any, gar: Callable[..., Any], *, rounds: int, q: int, f: int
) -> Any:
    """Bring servers' aggregated gradients together (listing 3.3): for data that are not iid.

    The trimmed mean does it; the median stays inside, too, and need not bring them any closer.
    """
    for _ in range(rounds):
        server.latest_aggr_grad = np.asarray(gradient, dtype=np.float32)
        gradient = gar(gradients=server.get_aggr_grads(q), f=f)
    return gradient
