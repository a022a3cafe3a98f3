"""Decentralized: no server; every node owns data and a model (listing 3.3).

Each step a node gathers everybody's gradients and joins them; where data are not
identically distributed, a contraction round then brings the joined gradients of
different nodes together, or as many as were asked for; last, nodes join their models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from garfield.apps.application import Peers, Probe, application
from garfield.apps.run import Run
from garfield.core.errors import ConfigError
from garfield.nodes.server import Server, contract

if TYPE_CHECKING:
    from garfield.apps.settings import Settings


@dataclass(frozen=True)
class DecentralizedSettings:
    """Settings of decentralized alone."""

    contractions: int | None = None
    """Contraction rounds a step; unless set, 1 where data are not iid and 0 where they are."""


class Decentralized(Peers[DecentralizedSettings]):
    """Peers that may contract their gradients before they use them."""

    own = DecentralizedSettings

    def check(self, settings: Settings) -> None:
        contractions = self.own_of(settings).contractions
        if contractions is not None and contractions < 0:
            raise ConfigError(f"contractions must be at least 0, got {contractions}.")
        super().check(settings)

    def settled(self, settings: Settings, probe: Probe) -> Settings:
        """Contract where data are dealt in another way than iid, if nothing else was said."""
        if self.own_of(settings).contractions is not None:
            return settings
        return settings.updated(contractions=0 if settings.samples.iid else 1)


@application("decentralized", Decentralized)
def decentralized(node: Server, run: Run[DecentralizedSettings]) -> None:
    """Peer to peer, no server at all: any node may lie."""
    q, f = run.numbers.q_w, run.numbers.f_w
    rounds = run.own.contractions or 0  # a number in every run that was settled
    for t in node.steps(run.steps):
        gradients = node.get_gradients(t, q)
        gradient = run.join_gradients(gradients)
        gradient = contract(node, gradient, run.join_aggregates, rounds=rounds, q=q, f=f)
        node.update_model(gradient)
        models = node.get_models(q)
        node.write_model(run.join_models(models))
        run.after_step(node, run)
