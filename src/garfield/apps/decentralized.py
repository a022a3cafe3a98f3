"""Decentralized: no server; every node owns data and a model (listing 3.3).

Each step a node gathers everybody's gradients and joins them; where data are not
identically distributed, contraction rounds then bring the joined gradients of
different nodes together; last, nodes join their models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from garfield.apps.application import Peers, Run, application
from garfield.core.errors import ConfigError
from garfield.nodes.server import Server, contract

if TYPE_CHECKING:
    from garfield.apps.settings import Settings


@dataclass(frozen=True)
class DecentralizedSettings:
    """Settings of decentralized alone."""

    contractions: int = 0
    """Contraction rounds a step, for data that are not iid."""


class Decentralized(Peers[DecentralizedSettings]):
    """Peers that may contract their gradients before they use them."""

    own = DecentralizedSettings

    def check(self, settings: Settings) -> None:
        contractions = self.own_of(settings).contractions
        if contractions < 0:
            raise ConfigError(f"contractions must be at least 0, got {contractions}.")
        super().check(settings)


@application("decentralized", Decentralized)
def decentralized(node: Server, run: Run[DecentralizedSettings]) -> None:
    """Peer to peer, no server at all: any node may lie."""
    q, f = run.numbers.q_w, run.numbers.f_w
    for t in node.steps(run.steps):
        gradients = node.get_gradients(t, q)
        gradient = run.join_gradients(gradients)
        gradient = contract(node, gradient, run.gar, rounds=run.own.contractions, q=q, f=f)
        node.update_model(gradient)
        models = node.get_models(q)
        node.write_model(run.join_models(models))
        run.after_step(node, run)
