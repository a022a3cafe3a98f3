"""Any rule in a Flower server: wrap the strategy that you have.

    from flwr.serverapp.strategy import FedAvg
    from garfield.flower import Robust

    strategy = Robust(FedAvg(min_train_nodes=7), gar="multi-krum", f=2)

The strategy still chooses nodes, configures them and, if it is FedAdam say, steps from the
aggregate; what it gets to aggregate is one reply, which the rule has made of all of them. Sizes of
data sets that nodes claim are not believed: every node counts once. `rounds` decides and knows
nothing of Flower; `messages` and `fit_results` are the shells for Flower's two kinds of strategy.

Needs flwr, which is imported with the first of these names, and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from garfield.core.errors import MissingDependency

if TYPE_CHECKING:
    from garfield.flower.fit_results import RobustFitResults
    from garfield.flower.messages import RobustMessages
    from garfield.flower.robust import Robust
    from garfield.flower.rounds import Outcome

__all__ = ["Outcome", "Robust", "RobustFitResults", "RobustMessages"]

_HOME = {
    "Outcome": "garfield.flower.rounds",
    "Robust": "garfield.flower.robust",
    "RobustFitResults": "garfield.flower.fit_results",
    "RobustMessages": "garfield.flower.messages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'garfield.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "flwr":
            raise
        raise MissingDependency(
            "Flower, 1.22 or later, is not installed. Install it with: pip install "
            "'garfield-ml[flower]'"
        ) from missing
