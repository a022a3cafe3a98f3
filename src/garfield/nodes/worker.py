"""Worker: follows its servers' models, and computes one gradient for each.

It waits for the model of its next step from enough of its servers (one server
alone can push nobody forward), joins those models, computes one gradient, and
serves it to every server that asks. A worker that restarts or falls behind is
told so by its servers, and takes the newest models of enough of them instead. One whose
servers were killed and go on from a checkpoint goes back with them (`standing.py`).

The loop is the same for every kind of worker. Kinds differ in where they get the
model of a step from (`fetch_model`) and in what they send for it (`gradient`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.adapters.adapt import adapt
from garfield.adapters.contract import Batch
from garfield.adapters.user_data import BatchesByStep, training_batches
from garfield.core.errors import QuorumError
from garfield.gars import Aggregator, Rule
from garfield.nodes.node import Behind, Node, NodeArguments, Unheard
from garfield.nodes.quorum import Quorum
from garfield.nodes.standing import SAID, STANDING, until_known, went_back_to
from garfield.nodes.tails import bodies, median_tail
from garfield.nodes.waiting import SERVERS
from garfield.transport.contract import NEWEST, Key, Payload, Transport

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

Data = BatchesByStep | Iterable[Batch] | tuple[Any, Any]
"""What a worker learns from: batches by step, a loader or data set, or arrays."""
OUTLASTS = 1.5
"""A worker waits for so many times as long as its servers do: while these wait for others, they say
nothing, and when they give up it is for them to say why."""
_SHORTEST_S = 1e-3  # to ask once more, and say who was silent; to ask without waiting
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
    follows_back = True
    """Whether servers that go back take it with them: these must meet at every step."""

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
        self.waits = replace(self.waits, give_up_s=OUTLASTS * self.waits.give_up_s)
        self.model, self.servers, self.f_ps = adapt(model, loss=loss), tuple(servers), f_ps
        self.q_ps = len(self.servers) if q_ps is None else q_ps
        self.model_gar = model_gar
        self.lists = {SERVERS: self.servers}
        if node.get("serves", True):
            self.outbox.audience = lambda asker, kind: asker in self.servers
            self.outbox.goes_back = len(self.servers) == 1
        self.momentum = momentum
        self.step = 0
        self.loss = float("nan")
        self.compute_s = 0.0
        self._data = training_batches(data)
        self._gradient = np.empty(self.model.size + self.model.tail, np.float32)
        self.velocities: dict[int, Payload] = {}
        """The last two, by the step whose gradient builds on each; none without momentum."""
        self.first_velocity: Callable[[int], Payload | None] = lambda step: None
        """What the first gradient builds on, at whatever step that is: from a checkpoint, say."""
        self._aggregator: Aggregator | None = None
        self.went_back: list[tuple[int, int]] = []
        """From which step to which, whenever its servers had gone back."""

    def serve(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Compute gradients until `stop`, or until the servers have been silent for too long."""
        while not stop():
            try:
                self.follow()
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
        return self.join(self.gather_models())

    def gather_models(self) -> Sequence[Payload | None]:
        """The servers' models of this step; where they are past it, their newest, and their step.

        No server chooses a step for a worker: only the claims of f + 1 of them move it.
        """
        n, length = len(self.servers), self.model.size + self.model.tail
        needs = self.model_gar.needs if isinstance(self.model_gar, Rule) else None
        if n == 1:
            needs = lambda f: 1  # noqa: E731 (there is nothing to join)
        quorum = (
            Quorum.of_first(self.q_ps, n, self.f_ps)
            if self.q_ps < n
            else Quorum.of_all(n, self.f_ps, needs=needs)
        )
        began = self.clock()
        wait_s = self.waits.timeout_s if self.follows_back else inf
        stands: dict[str, int] = {}
        while True:
            try:
                return self.gather(
                    self.servers, Key("model", self.step), length=length,
                    quorum=replace(quorum, looks_back_after_s=wait_s),
                    timeout_s=max(_SHORTEST_S, began + self.waits.give_up_s - self.clock()),
                ).rows  # fmt: skip
            except Unheard:
                # half a time-out later it sees what it has asked now. No more rarely: a server that
                # takes long to start again would give up before its workers look
                followed = self._follow_back(stands, self.clock() - began)
                wait_s = self.waits.timeout_s / (1 if followed else 2)
            except Behind:
                began = self.clock()
                stands.clear()
                found = self.newest(
                    self.servers, "model", length=length, beyond=self.step, f=self.f_ps,
                    count=n if needs is None else needs(self.f_ps),
                )  # fmt: skip
                if found is not None:
                    self.step = found.step
                    return found.rows

    def _follow_back(self, stands: dict[str, int], waited_s: float) -> bool:
        """Go back to where the servers are, if enough of them were started again.

        Nobody is waited for: a model may be on its way, and must not be late for this. What is
        not answered at once is there at the next look, if it is of the same step still; `stands`
        is what servers have said at that step, now and before. An answer may take as long as this
        worker has waited: where all take longer than a time-out, none would be heard otherwise.
        """
        n, f, step = len(self.servers), self.f_ps, self.step
        known, ends = until_known(step, n=n, f=f), self.clock() + _SHORTEST_S
        replies = self.transport.pull(
            self.servers, Key(STANDING.name, NEWEST, step), length=len(SAID),
            until=lambda heard: min(known(heard), max(0.0, ends - self.clock())),
            timeout_s=max(self.waits.timeout_s, waited_s),
        )  # fmt: skip
        stands |= replies.steps
        back = went_back_to(stands, step, n=n, f=f)
        if back is not None:
            stands.clear()
            self.went_back.append((step, back))
            self.step = back
            self.outbox.go_back(back)
            self.velocities.clear()  # of a future that will be another
            self._aggregator = None
        return back is not None

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
        return np.asarray(self._joined(bodies(rows, size))), median_tail(rows, size)

    def _joined(self, rows: Sequence[Payload | None]) -> Any:
        if not isinstance(self.model_gar, Rule):
            assert self.model_gar is not None  # join has looked
            return self.model_gar(gradients=rows, f=self.f_ps)
        if self._aggregator is None or self._aggregator.n != len(rows):
            self._aggregator = Aggregator(self.model_gar, len(rows), self.f_ps, self.rng)
        return self._aggregator.aggregate(rows)

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
        last, beta = self.velocities.get(self.step), np.float32(self.momentum)
        if last is None:
            return
        for at in range(0, self.model.size, _BLOCK):
            part = slice(at, min(at + _BLOCK, self.model.size))
            self._gradient[part] += beta * last[part]

    def _publish_gradient(self) -> None:
        key = Key(self.sends, self.step)
        if self.velocities:  # the newest, also after a jump; the one before is not needed now
            self.velocities = {self.step: self.velocities[max(self.velocities)]}
        elif self.momentum and (first := self.first_velocity(self.step)) is not None:
            self.velocities = {self.step: first}
        self.outbox.publish(key, self.gradient(), copy=False)
        mine = self.outbox.own(key)
        if self.momentum and mine is not None:
            self.velocities[self.step + 1] = mine
