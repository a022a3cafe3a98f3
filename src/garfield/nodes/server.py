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
from garfield.kernels.finite import all_finite
from garfield.nodes.node import Behind, Gathered, Node, NodeArguments
from garfield.nodes.tails import bodies, median_tail
from garfield.nodes.worker import Worker
from garfield.transport.contract import Key, Payload, Transport

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
        loss: Any = None,
        scheduler: Any = None,
        test: Iterable[Batch] | tuple[Any, Any] = (),
        worker: Worker | None = None,
        **node: Unpack[NodeArguments],
    ) -> None:
        """`model` is a torch.nn.Module or a Keras model (or an adapter), `optimizer` one for it.

        `workers` and `servers` are names that the transport knows; f_w and f_ps of them may be
        faulty. `test` is iterated by compute_accuracy. The rest goes to `Node`.
        """
        super().__init__(transport, **node)
        self.model = adapt(model, loss=loss, optimizer=optimizer, scheduler=scheduler)
        self.workers = tuple(workers)
        self.servers = tuple(servers) or (self.name,)
        self.f_w, self.f_ps, self.test = f_w, f_ps, evaluation_batches(test)
        self.worker = worker
        """A node that is both has one, which computes its gradient before others are asked."""
        self.step = 0
        self.latest_aggr_grad: Payload | None = None
        self.heard: Gathered | None = None
        """The last gradients gathered: who sent them, and who was silent."""
        self._round = 0
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
        self.model.step(np.asarray(gradient, dtype=np.float32))
        self._replace_tail()
        self.step += 1

    def get_models(self, q: int) -> ReceivedRows:
        """Models of q servers after their step, this one's included."""
        key = Key("proposal", self.step)
        self._recall(key.kind)
        self._publish(key)
        try:
            found = self.gather(self.servers, key, length=self._length, quorum=q, f=self.f_ps).rows
        except Behind as behind:
            # servers that have ended have no model of their last step, but its proposal
            self.catch_up(behind.step, kind="proposal")
            found = [self.read_model()] * q  # joined already, by catching up
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
            return self.gather(self.servers, key, length=len(mine), quorum=q, f=self.f_ps).rows
        except Behind:
            return [mine] * q  # peers are past this step: get_models will catch up with them

    def compute_accuracy(self) -> float:
        """Share of right predictions on the test set."""
        return self.evaluate()[0]

    def evaluate(self) -> tuple[float, float]:
        """Share of right predictions on the test set, and the mean loss there."""
        return self.model.evaluate(self.test)

    # -- around them ------------------------------------------------------------------------

    def steps(self, total: int) -> Iterator[int]:
        """The steps still to be done, those that a rejoining server skips left out."""
        while self.step < total:
            yield self.step

    def gather_gradients(
        self, t: int, q: int, *, kind: str = "gradient", numbers: int = 1
    ) -> Gathered:
        """What q workers send of that kind at step t, `numbers` of them for each of the model's."""
        self.step, self._round = max(self.step, t), 0
        self._recall("gradient")
        if self.heard is not None:
            self.heard.rows.clear()
        length = numbers * self._length
        while True:
            self._publish_model()
            key = Key(kind, self.step)
            try:
                return self.gather(self.workers, key, length=length, quorum=q, f=self.f_w)
            except Behind as behind:
                self.catch_up(behind.step)
            except QuorumError as failure:
                self._tell_divergence(failure)
                raise

    def catch_up(self, step: int, *, kind: str = "model") -> None:
        """Jump to `step`, with the model that the other servers have there."""
        others = [name for name in self.servers if name != self.name]
        if len(others) <= self.f_ps:
            raise QuorumError(
                f"{self.name} is at step {self.step} and its workers at {step}, and no other "
                "server is left to learn the model from. Resume from a checkpoint."
            )
        quorum = max(1, len(others) - self.f_ps)
        while True:
            key = Key(kind, step)
            try:
                found = self.gather(others, key, length=self._length, quorum=quorum, f=self.f_ps)
                break
            except Behind as behind:
                step = behind.step
        rows = [row for row in found.rows if row is not None]
        self.model.write(_median(rows))
        self.model.skip(max(0, step - self.step))
        self.step = step

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


def _median(rows: Sequence[Payload]) -> Payload:
    return median_tail(rows, 0)


def contract(
    server: Server, gradient: Any, gar: Callable[..., Any], *, rounds: int, q: int, f: int
) -> Any:
    """Bring servers' aggregated gradients together (listing 3.3): for data that are not iid."""
    for _ in range(rounds):
        server.latest_aggr_grad = np.asarray(gradient, dtype=np.float32)
        gradient = gar(gradients=server.get_aggr_grads(q), f=f)
    return gradient
