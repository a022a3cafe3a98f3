"""Vanilla: one server, averaging. What every framework does; survives nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from garfield.apps.application import Application, application
from garfield.apps.run import NoSettings, Run
from garfield.core.errors import ConfigError
from garfield.nodes.server import Server

if TYPE_CHECKING:
    from garfield.apps.settings import Settings


class Vanilla(Application[NoSettings]):
    """Tolerates no faults, whatever there may be, and waits for all."""

    def tolerated_workers(self, settings: Settings) -> int:
        return 0

    def rule_name(self, settings: Settings) -> str:
        return "average"

    def check(self, settings: Settings) -> None:
        if settings.rounds.asynchronous:
            raise ConfigError("vanilla tolerates no faults and waits for all. Choose ssmw instead.")
        super().check(settings)

    def check_transport(self, settings: Settings) -> None:
        """Any transport will do: all nodes are trusted."""


@application("vanilla", Vanilla)
def vanilla(ps: Server, run: Run[NoSettings]) -> None:
    """One server, averaging: the baseline."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.n_w)
        ps.update_model(run.join_gradients(gradients))
        run.after_step(ps, run)
