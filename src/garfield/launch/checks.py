"""Checks of settings against each other: who takes part, how many may fail, how they talk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from garfield.core.errors import ConfigError, UnknownName
from garfield.core.frameworks import FRAMEWORKS
from garfield.models import MODELS
from garfield.nodes.byzantine import parse_plan

if TYPE_CHECKING:
    from garfield.launch.settings import Settings

NONE = "none"
TRANSPORTS = ("grpc", "gloo", "nccl")


def exclusion(settings: Settings) -> None:
    """Only nodes of the run can be left out, and not all of a kind."""
    s = settings
    known = dict.fromkeys((*s.all_servers, *s.all_workers))
    for name in s.excluded:
        if name not in known:
            raise UnknownName("a node of this run", name, known)
    if not s.worker_names or not s.honest_servers:
        who = "honest server" if s.worker_names else "worker"
        raise ConfigError(f"Without {', '.join(s.excluded)} no {who} is left.")


def tolerance(settings: Settings) -> None:
    """Somebody must be honest, whatever the rule says; and nobody can lie where there is nothing.

    A rule's own bound comes later: it knows what it needs beyond this.
    """
    s = settings
    for name, f, n in (
        ("f_workers", s.numbers.f_w, s.numbers.n_w), ("f_servers", s.numbers.f_ps, s.numbers.n_ps),
    ):  # fmt: skip
        if not 0 <= f < n:
            raise ConfigError(f"{name} must be within 0..{n - 1} (of the {n} there are), got {f}.")
    if s.application.peers and (s.servers != 1 or s.f_servers or s.server_attack != NONE):
        raise ConfigError(
            f"{s.app} has no servers: every node is server and worker at once. Say it with "
            "--workers, --f-workers and --worker-attack."
        )
    attack = None if s.server_attack == NONE else parse_plan(s.server_attack).attack
    if attack is not None and attack.kind == "data":
        raise ConfigError(f"{attack.name} lies in the training data, and servers have none.")


def frameworks(settings: Settings) -> None:
    """They are known, have the model, and are mixed only where weights and bits may differ."""
    s = settings
    for name in s.frameworks:
        if name not in FRAMEWORKS:
            raise UnknownName("a framework", name, FRAMEWORKS)
    written = [name for name, model in MODELS.items() if model.in_keras is not None]
    if "tensorflow" in s.frameworks and s.model not in written:
        raise ConfigError(
            f"{s.model} is not written for TensorFlow. Choose one of: {', '.join(written)}."
        )
    if len(set(s.frameworks)) == 1:
        return
    if s.application.peers:
        raise ConfigError(
            f"The nodes of {s.app} start from the same weights, and torch and tensorflow draw "
            "them differently. Choose one framework."
        )
    if s.application.shared_data:
        raise ConfigError(
            f"The workers of {s.app} compute the same gradients, bit for bit, and those of torch "
            "and tensorflow differ by rounding. Choose one framework."
        )


def transport(settings: Settings) -> None:
    """Collectives carry the trusted baseline alone."""
    s = settings
    if s.transport not in TRANSPORTS:
        raise UnknownName("a transport", s.transport, TRANSPORTS)
    if s.transport == "grpc":
        return
    if s.application.robust or s.application.several_servers:
        raise ConfigError(
            f"{s.app} must survive faults, and with {s.transport} one silent peer ends the "
            "communication of all. Use --transport grpc, or --app vanilla."
        )
    if s.simulate or s.asynchronous or {s.worker_attack, s.server_attack} != {NONE}:
        raise ConfigError(
            f"With {s.transport} all nodes are trusted, synchronous and real: no attacks, no "
            "--asynchronous, no --simulate. Use --transport grpc for these."
        )
    from garfield.transport.collectives import check

    check(s.transport, len(s.worker_names) + len(s.server_names))
