"""Peer: a training script that runs in several processes, some of which may lie.

Every process runs the whole script on a share of the data of its own. Whenever the
script's optimizer takes a step, peers exchange their gradients and step along what
the rule makes of them; then they exchange their models and go on from what the rule
makes of those (thesis, listing 3.3: nobody is trusted, and there is no server). The
loop, the loss, the optimizer and its schedule stay the script's.

Peers must start from the same weights (a seed does it) and take as many steps each;
`share` gives every peer equally many samples. Up to f of them may lie, as the rule
allows for that many among n; with f peers more than it needs they may also be silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from garfield.adapters.user_data import share
from garfield.adapters.user_loop import UserLoopAdapter, adapt_user_loop
from garfield.core.errors import UnknownName
from garfield.gars import Aggregator, Rule, init
from garfield.nodes.byzantine import LyingOutbox, Plan
from garfield.nodes.node import Waits
from garfield.nodes.outbox import Outbox
from garfield.nodes.server import Server
from garfield.transport.contract import Key, Transport


class Peer:
    """One of n processes that run the same script."""

    def __init__(
        self, transport: Transport, names: Sequence[str], *, plan: Plan | None = None
    ) -> None:
        """`names` are all peers', as the transport knows them; with a plan, this one lies."""
        if transport.name not in names:
            raise UnknownName("one of the peers", transport.name, names)
        self.transport, self.names, self.plan = transport, tuple(names), plan
        self.rank, self.n = self.names.index(transport.name), len(self.names)

    def share(self, data: Any) -> Any:
        """This peer's part of an array, a tensor or a data set; equally long for each peer."""
        return share(data, self.rank, self.n)

    def robust(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        gar: str | Rule,
        f: int,
        model_gar: str | Rule = "trimmed-mean",
        waits: Waits | None = None,
    ) -> Server:
        """Make every step of the optimizer exchange and aggregate, from now on.

        `gar` joins gradients, `model_gar` the models after the step. Returns the node behind it,
        whose `heard` and `account` tell who was silent, and why.
        """
        joins = init(gar, n=self.n, f=f), init(model_gar, n=self.n, f=f)
        return _Exchange(self, adapt_user_loop(model, optimizer), *joins, waits)


class _Exchange(Server):
    """What happens around a step: server and worker at once, as in a decentralized run."""

    def __init__(
        self,
        peer: Peer,
        model: UserLoopAdapter,
        gradients: Aggregator,
        models: Aggregator,
        waits: Waits | None,
    ) -> None:
        f = gradients.f
        lying = peer.plan and LyingOutbox(peer.plan, peer.transport.name)
        super().__init__(
            model, transport=peer.transport, workers=peer.names, servers=peer.names, f_w=f, f_ps=f,
            gar=gradients.rule, model_gar=models.rule, outbox=lying or Outbox(), waits=waits,
        )  # fmt: skip
        self._own, self._n = model, peer.n
        self._gradients, self._models, self._jumped = gradients, models, 0
        model.around_step(self._before, self._after)

    def _before(self) -> None:
        gradients = self.get_gradients(self.step, self._n)
        if self.jumps != self._jumped:  # what was remembered is of a past that is not its own
            self._gradients.forget()
            self._models.forget()
            self._jumped = self.jumps
        self.update_model(self._gradients.aggregate(gradients, own=self.own_row("gradient")))

    def _after(self) -> None:
        models = self.get_models(self._n)
        self.write_model(self._models.aggregate(models, own=self.own_row("proposal")))

    def _publish_model(self) -> None:
        super()._publish_model()
        gradient = np.empty(self._length, np.float32)
        self._own.own_gradient(gradient)
        self.outbox.publish(Key("gradient", self.step), gradient)
