"""From settings and what devices declare to a server, wherever the devices are."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from garfield.core.errors import InputError
from garfield.fedgan.averaging import NETWORKS, State, network_state
from garfield.fedgan.gan import Gan
from garfield.fedgan.joining import Layout, Robust, Weighted
from garfield.fedgan.load import Load, LoadModel
from garfield.fedgan.metadata import MetadataTable
from garfield.fedgan.sampling import round_size
from garfield.fedgan.server import FederatedServer, RoundRules
from garfield.fedgan.settings import FedganSettings

FULL_MEMORY_MB, FULL_COMPUTE = 1024.0, 1.0
"""What a device that bears the full load declares."""


def refuse_missing_classes(
    table: MetadataTable, settings: FedganSettings, class_names: Sequence[str] | None = None
) -> None:
    """Before anything is trained: ConfigError for a class that no device has, unless it may be.

    Once a training is under way, its last holder may well leave a class.
    """
    if settings.population.missing_classes == "refuse":
        table.check_classes(class_names or [f"class {c}" for c in range(table.counts.shape[1])])


def federated_server(gan: Gan, table: MetadataTable, settings: FedganSettings) -> FederatedServer:
    """A server before its first round, or one that goes on; refuses what cannot work."""
    classes = table.counts.shape[1]
    if gan.conditional_on is not None and gan.conditional_on < classes:
        raise InputError(
            f"The networks know {gan.conditional_on} classes, and the data have {classes}."
        )
    networks = gan.build(settings.training.seed)
    state, parameters = network_state(networks), parameter_names(networks)
    return server_of_state(state, parameters, table, settings)


def server_of_state(
    state: State, parameters: frozenset[str], table: MetadataTable, settings: FedganSettings
) -> FederatedServer:
    """A server of any learning state, of which these are the parameters and the rest buffers."""
    rounds, lies = settings.training, settings.lies
    size = round_size(rounds.fraction, table.devices)
    joining = Weighted() if lies.gar is None else Robust(lies.gar, size, lies.f, parameters)
    rules = RoundRules(
        devices_a_round=size,
        load=LoadModel(Load(rounds.batch, rounds.local_steps), FULL_MEMORY_MB, FULL_COMPUTE),
        sampling=rounds.sampling, weighting=rounds.weighting,
        generator_every=rounds.generator_every,
        keeps_optimizer=rounds.optimizer_state == "average", seed=rounds.seed,
    )  # fmt: skip
    return FederatedServer(state, table, rules, joining)


def layout_of(gan: Gan) -> Layout:
    """Parameters of both networks as one vector."""
    return Layout(parameter_names(gan.build(seed=0)))


def parameter_names(networks: tuple[nn.Module, nn.Module]) -> frozenset[str]:
    """How a learning state names the parameters of both networks."""
    return frozenset(
        f"{prefix}.{name}"
        for prefix, network in zip(NETWORKS, networks, strict=True)
        for name, _ in network.named_parameters()
    )
