"""Worker: follows its servers' models, and computes one gradient for each.

It waits for the model of its next step from enough of its servers (one server
alone can push nobody forward), joins those models, computes one gradient, and
serves it to every server that asks. A worker that restarts or falls behind is
told so by its servers, and jumps to the step that f + 1 of them agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from garfield.adapters.adapt import adapt
from garfield.adapters.contract import Batch
from garfield.adapters.feeding import Batches, endless
from garfield.core.errors import QuorumError
from garfield.nodes.node import Behind, Node
from garfield.nodes.tails import bodies, median_tail
from garfield.transport.contract import Key, Payload, Transport

Rule = Callable[..., Any]
_BLOCK = 1 << 16  # numbers at a time: what is made of them stays in the cache


class Worker(Node):
    """Owns data; answers models with gradients."""

    def __init__(
        self,
        model: Any,
        data: Batches | Iterable[Batch] | tuple[Any, Any],
        *,
        transport: Transport,
        servers: Sequence[str],
        loss: Any = None,
        f_ps: int = 0,
        q_ps: int | None = None,
        model_gar: Rule | None = None,
        momentum: float = 0.0,
        **node: Any,
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
        self._data = endless(data)
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
        """One step: get the model, compute, publish."""
        key = Key("model", self.step)
        length = self.model.size + self.model.tail
        rows = self.gather(self.servers, key, length=length, quorum=self.q_ps, f=self.f_ps).rows
        self.take(rows)
        self.step += 1

    def take(self, rows: list[Payload | None]) -> None:
        """Compute this step's gradient at what the servers' models come to."""
        body, tail = self._joined_parts(rows)
        rows.clear()  # a vector each, not needed meanwhile
        self.model.write_body(body)
        self.model.write_tail(tail)
        del body, tail
        self.publish_gradient(self.step)

    def compute(self, step: int, model: Payload) -> None:
        """Publish the gradient of one batch at `model`."""
        self.model.write(model)
        self.publish_gradient(step)

    def publish_gradient(self, step: int) -> None:
        """Of one batch, where the model is now."""
        self._differentiate(step)
        if self.momentum:
            self._accelerate()
        # the outbox's from now on; what takes its place is no memory until it is written to
        mine, self._gradient = self._gradient, np.empty_like(self._gradient)
        self.outbox.publish(Key("gradient", step), mine, copy=False)
        self._velocity = self.outbox.own(Key("gradient", step))

    def differentiate(self, step: int, model: Payload) -> None:
        """Compute that gradient, and keep it to oneself."""
        self.model.write(model)
        self._differentiate(step)

    def _differentiate(self, step: int) -> None:
        started = self.clock()
        self.loss = self.model.gradient(self._data.batch(step), self._gradient)
        self.compute_s += self.clock() - started

    def tells(self) -> dict[str, Any]:
        """What a report should say of it, besides what is said of every worker."""
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

    def _joined(self, rows: Sequence[Payload | None]) -> Payload:
        """What the servers' models come to, as one vector of this worker's own."""
        return np.concatenate(self._joined_parts(rows))

    def _joined_parts(self, rows: Sequence[Payload | None]) -> tuple[Payload, Payload]:
        """The parameters and the buffers of it: apart, they need no vector more."""
        size = self.model.size
        if len(rows) == 1 and rows[0] is not None:
            return rows[0][:size], rows[0][size:]
        if self.model_gar is None:
            raise QuorumError(f"{self.name} has several servers and no model_gar to join them by.")
        body = self.model_gar(gradients=bodies(rows, size), f=self.f_ps)
        return np.asarray(body), median_tail(rows, size)
