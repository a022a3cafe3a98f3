"""Robust: which wrapper a strategy takes."""

from __future__ import annotations

from typing import Any

import flwr.server.strategy
import flwr.serverapp.strategy

from garfield.core.errors import ConfigError
from garfield.flower.fit_results import RobustFitResults
from garfield.flower.messages import RobustMessages


def Robust(strategy: Any, gar: str, f: int) -> RobustMessages | RobustFitResults:  # noqa: N802
    """The same strategy, with rule `gar` in place of its mean, for f faulty nodes a round.

    Takes strategies of `flwr.serverapp` and of `flwr.server`. BoundError if the strategy may ask
    fewer nodes than the rule needs for f.
    """
    if isinstance(strategy, flwr.serverapp.strategy.Strategy):
        return RobustMessages(strategy, gar, f)
    if isinstance(strategy, flwr.server.strategy.Strategy):
        return RobustFitResults(strategy, gar, f)
    raise ConfigError(
        "Robust takes a strategy of flwr.serverapp.strategy or flwr.server.strategy, got a "
        f"{type(strategy).__name__}."
    )
