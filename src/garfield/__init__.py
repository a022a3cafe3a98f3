"""Garfield: robust distributed learning.

Training that survives machines that lie, crash or stall. Start with `init` and
`GARs` (robust aggregation); every name below is imported when first used, so
importing the package is fast and runs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from garfield.core.version import VERSION

if TYPE_CHECKING:
    from garfield.attacks import ATTACKS, Attack, View, attack
    from garfield.core.errors import (
        AccessDenied,
        AnswerNotFinite,
        BoundError,
        BudgetSpent,
        ClusterError,
        ClusterUnreachable,
        ConfigError,
        CoordinationUnreachable,
        Deadlock,
        DecodingError,
        DivergedError,
        GarfieldError,
        InputError,
        LeaseLost,
        MissingDependency,
        NodeFailed,
        ObjectAbsent,
        ObjectDamaged,
        ObjectMissing,
        QuorumError,
        RequestRefused,
        RunError,
        SplitError,
        StateUnreachable,
        StoreUnreachable,
        UnknownName,
        WriteConflict,
    )
    from garfield.gars import GARS, Aggregator, Explained, Rule, chain, gar, init
    from garfield.gars import GARS as GARs  # noqa: N811 (the thesis spells it both ways)
    from garfield.gars.robustness import worst_kappa
    from garfield.gars.variance import variance_condition
    from garfield.kernels import set_threads
    from garfield.launch.local import run_locally
    from garfield.launch.peers import run_as_peers
    from garfield.launch.python_training import train
    from garfield.launch.sweep import sweep
    from garfield.launch.training_run import TrainingRun
    from garfield.nodes.byzantine import ByzantineServer, ByzantineWorker, Plan
    from garfield.nodes.peer import Peer
    from garfield.nodes.server import Server, contract
    from garfield.nodes.worker import Worker
    from garfield.preaggregation import STAGES, Stage, stage
    from garfield.transport.connect import connect

__version__ = VERSION

_HOMES = {
    "garfield.attacks": ("ATTACKS", "Attack", "View", "attack"),
    "garfield.core.errors": (
        "AccessDenied", "AnswerNotFinite", "BoundError", "BudgetSpent", "ClusterError",
        "ClusterUnreachable",
        "ConfigError", "CoordinationUnreachable", "Deadlock", "DecodingError", "DivergedError",
        "GarfieldError", "InputError", "LeaseLost", "MissingDependency", "NodeFailed",
        "ObjectAbsent", "ObjectDamaged", "ObjectMissing", "QuorumError", "RequestRefused",
        "RunError", "SplitError", "StateUnreachable", "StoreUnreachable", "UnknownName",
        "WriteConflict",
    ),
    "garfield.gars": ("GARS", "Aggregator", "Explained", "Rule", "chain", "gar", "init"),
    "garfield.gars.robustness": ("worst_kappa",),
    "garfield.gars.variance": ("variance_condition",),
    "garfield.kernels": ("set_threads",),
    "garfield.launch.local": ("run_locally",),
    "garfield.launch.peers": ("run_as_peers",),
    "garfield.launch.python_training": ("train",),
    "garfield.launch.sweep": ("sweep",),
    "garfield.launch.training_run": ("TrainingRun",),
    "garfield.nodes.byzantine": ("ByzantineServer", "ByzantineWorker", "Plan"),
    "garfield.nodes.peer": ("Peer",),
    "garfield.nodes.server": ("Server", "contract"),
    "garfield.nodes.worker": ("Worker",),
    "garfield.preaggregation": ("STAGES", "Stage", "stage"),
    "garfield.transport.connect": ("connect",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ATTACKS", "GARS", "STAGES", "AccessDenied", "Aggregator", "AnswerNotFinite", "Attack",
    "BoundError",
    "BudgetSpent", "ByzantineServer", "ByzantineWorker", "ClusterError", "ClusterUnreachable",
    "ConfigError", "CoordinationUnreachable", "Deadlock", "DecodingError", "DivergedError",
    "Explained", "GARs", "GarfieldError", "InputError", "LeaseLost", "MissingDependency",
    "NodeFailed", "ObjectAbsent",
    "ObjectDamaged", "ObjectMissing", "Peer", "Plan", "QuorumError", "RequestRefused", "Rule",
    "RunError", "Server", "SplitError", "Stage", "StateUnreachable", "StoreUnreachable",
    "TrainingRun", "UnknownName", "View", "Worker", "WriteConflict", "attack", "chain", "connect",
    "contract", "gar", "init", "run_as_peers", "run_locally", "set_threads", "stage", "sweep",
    "train",
    "variance_condition", "worst_kappa",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "GARs":
        name = "GARS"
    if name not in _HOME:
        raise AttributeError(f"module 'garfield' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
