"""Worker: follows its servers' models, and computes one gradient for each.

It waits for the model of its next step from enough of its servers (one server
alone can push nobody forward), joins those models, computes one gradient, and
serves it to every server that asks. A worker that restarts or falls behind is
told so by its servers, and jumps to the step that f + 1 of them agree on.

The loop is the same for every kind of worker. Kinds differ in where they get the
model of a step from (`fetch_model`) and in what they send for it (`gradient`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.adapters.adapt import adapt
from garfield.adapters.contract import Batch
from garfield.adapters.user_data import BatchesByStep, training_batches
from garfield.core.errors import QuorumError
from garfield.nodes.node import Behind, Node, NodeArguments
from garfield.nodes.tails import bodies, median_tail
from garfield.transport.contract import Key, Payload, Transport

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

Data = BatchesByStep | Iterable[Batch] | tuple[Any, Any]
"""What a worker learns from: batches by step, a loader or data set, or arrays."""
_BLOCK = 1 << 16  # numbers at a time: what is made of them stays in the cache


class WorkerArguments(NodeArguments, total=False):
    """What every worker takes by name: for the constructors of special ones."""

    transport: Required[Transport]
    servers: Required[Sequence[str]]
    loss: Any
    f_ps: int
    q_ps: int | None
    model_gar: Callable[..., Any] | None
    momentum: float


class Worker(Node):
    """Owns data; answers models with gradients."""

    sends = "gradient"
    """The kind of vector that `gradient` makes."""

    def __init__(
        self,
        model: Any,
        data: Data,
        *,
        transport: Transport,
        servers: Sequence[str],
        loss: Any = None,
        f_ps: int = 0,
        q_ps: int | None = None,
        model_gar: Callable[..., Any] | None = None,
        momentum: float = 0.0,
        **node: Unpack[NodeArguments],
    ) -> None:
        """`model` is a torch.nn.Module or a Keras model (or an adapter), `data` a DataLoader, a
        tf.data.Dataset, any iterable of batches, or arrays (inputs, targets). `servers` are names
        that the transport knows, f_ps of which may be faulty; `model_gar` joins the models of
        several. The rest goes to `Node`.
        """
        super().__init__(transport, **node)
        self.model, self.servers, self.f_ps = adapt(model, loss=loss), tuple(servers), f_ps
        self.q_ps = len(self.servers) if q_ps is None else q_ps
        self.model_gar = model_gar
        self.momentum = momentum
        self.step = 0
        self.loss = float("nan")
        self.compute_s = 0.0
        self._data = training_batches(data)
        self._gradient = np.empty(self.model.size + self.model.tail, np.float32)
        self._velocity: Payload | None = None

    def serve(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Compute gradients until `stop`, or until the servers have been silent for too long."""
        while not stop():
            try:
                self.follow()
            except Behind as behind:
                self.step = max(self.step, behind.step)
            except QuorumError:
                if stop():
                    return
                raise

    def follow(self) -> None:
        """Do one step: get the model, compute its gradient, publish it."""
        parameters, buffers = self.fetch_model()
        self.model.write_body(parameters)
        self.model.write_tail(buffers)
        del parameters, buffers  # a vector, not needed meanwhile
        self._publish_gradient()
        self.step += 1

    def fetch_model(self) -> tuple[Payload, Payload]:
        """The parameters and the buffers that the servers' models of this step come to.

        A kind of worker that follows its servers in another way overrides this.
        """
        key, length = Key("model", self.step), self.model.size + self.model.tail
        found = self.gather(self.servers, key, length=length, quorum=self.q_ps, f=self.f_ps)
        return self.join(found.rows)

    def gradient(self) -> Payload:
        """The row to send for this step, at the model as it is now; the outbox's from then on.

        A kind of worker that sends something else overrides this.
        """
        self.differentiate()
        if self.momentum:
            self._accelerate()
        return self.hand_over()

    def compute(self, step: int, model: Payload) -> None:
        """Publish the gradient of a step at `model`: for a server that is a worker, too."""
        self.step = step
        self.model.write(model)
        self._publish_gradient()

    def join(self, rows: Sequence[Payload | None]) -> tuple[Payload, Payload]:
        """Parameters and buffers that several servers' models come to; apart, without a copy."""
        size = self.model.size
        if len(rows) == 1 and rows[0] is not None:
            return rows[0][:size], rows[0][size:]
        if self.model_gar is None:
            raise QuorumError(f"{self.name} has several servers and no model_gar to join them by.")
        parameters = self.model_gar(gradients=bodies(rows, size), f=self.f_ps)
        return np.asarray(parameters), median_tail(rows, size)

    def differentiate(self, data: BatchesByStep | None = None) -> None:
        """Compute the gradient of this step's batch, of its own data if not told otherwise."""
        batch = (self._data if data is None else data).batch(self.step)
        started = self.clock()
        self.loss = self.model.gradient(batch, self._gradient)
        self.compute_s += self.clock() - started

    def hand_over(self) -> Payload:
        """The gradient computed last; what takes its place is no memory until it is written to."""
        mine, self._gradient = self._gradient, np.empty_like(self._gradient)
        return mine

    def event_fields(self) -> dict[str, Any]:
        """What this kind of worker adds to the events that are told of every worker."""
        return {}

    def _accelerate(self) -> None:
        """v ← β v + g in the place of g; the mean of all workers' is SGD's with momentum.

        The last v is what was published last: the outbox keeps it, and nobody else needs to.
        """
        last, beta = self._velocity, np.float32(self.momentum)
        if last is None:
            return
        for at in range(0, self.model.size, _BLOCK):
            part = slice(at, min(at + _BLOCK, self.model.size))
            self._gradient[part] += beta * last[part]

    def _publish_gradient(self) -> None:
        key = Key(self.sends, self.step)
        self.outbox.publish(key, self.gradient(), copy=False)
        self._velocity = self.outbox.own(key)
