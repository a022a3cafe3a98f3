"""A server as the state database keeps it, and as another server goes on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from garfield.core.config import values_of
from garfield.core.errors import ConfigError
from garfield.fedgan.assembling import federated_server
from garfield.fedgan.averaging import State, check_alike, fresh_optimizer_state
from garfield.fedgan.clustering import PublishedClusters
from garfield.fedgan.gan import Gan
from garfield.fedgan.joining import Robust
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.secure_round import MASKED
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.server import FederatedServer
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import LearningState, RoundChoices

_LAST = "joining.last"  # what a rule remembers, beside the state
_CENTROIDS = "clusters.centroids"  # by which devices without labels count
_VERSIONS = "versions"  # of what devices declare, beside their names


def new_server(
    gan: Gan, about: About, settings: FedganSettings, table: MetadataTable
) -> FederatedServer:
    """A server whose states are alike in all rounds, before its first one."""
    server = federated_server(gan, table, settings)
    if server.rules.keeps_optimizer:
        server.state = server.state | fresh_state_of_optimizers(gan)
    if about.secure_aggregation:
        server.update_bytes = StateLayout.of(server.state).length * MASKED.dtype.itemsize
    return server


def kept_state(
    server: FederatedServer, about: About, settings: FedganSettings, versions: Mapping[str, int],
    event: Mapping[str, Any] | None, clusters: PublishedClusters | None = None,
) -> LearningState:  # fmt: skip
    """All that another server needs to go on after this round, of which `event` tells.

    `versions` are those of what each device declares, in the order of their numbers.
    """
    last = server.joining.last if isinstance(server.joining, Robust) else None
    tensors = server.state if last is None else server.state | {_LAST: torch.from_numpy(last)}
    if clusters is not None:
        tensors = tensors | {_CENTROIDS: clusters.centroids}
    declared = {
        name: server.table.declared(device).as_json() for device, name in enumerate(versions)
    }
    return LearningState(
        server.round, tensors,
        document={"about": about.as_json(), "settings": values_of(settings)},
        devices=declared | {_VERSIONS: list(versions.values())}, choices=event,
    )  # fmt: skip


def devices_of(kept: LearningState) -> list[str]:
    """The names of the devices of a training, in no order."""
    return [name for name in kept.devices if name != _VERSIONS]


def clusters_of(kept: LearningState) -> PublishedClusters:
    """The clusters that were published, of a training of devices without labels."""
    about = About.read(dict(kept.document["about"]))
    if about.clusters is None or _CENTROIDS not in kept.tensors:
        raise ConfigError(
            "The state is one of devices with labels, and this training has clusters. Choose "
            "another --out, or another --state."
        )
    return PublishedClusters(about.clusters.key, kept.tensors[_CENTROIDS])


def restored_server(
    kept: LearningState, held: Iterable[RoundChoices], gan: Gan, about: About,
    settings: FedganSettings, devices: Sequence[str],
) -> tuple[FederatedServer, dict[str, int]]:  # fmt: skip
    """The server after what was committed last, and versions of what devices declare.

    `held` is the history of all rounds; `devices` are names, in the order of their numbers.
    """
    if sorted(devices_of(kept)) != sorted(devices):
        raise ConfigError(
            f"The state is one of {len(devices_of(kept))} devices, and this server knows "
            f"{len(devices)}. Give the same --devices."
        )
    declared = [
        DeviceMetadata.read(name, kept.devices[name], len(about.classes)) for name in devices
    ]
    server = new_server(gan, about, settings, MetadataTable.of(declared, devices))
    tensors = dict(kept.tensors)
    last = tensors.pop(_LAST, None)
    tensors.pop(_CENTROIDS, None)
    check_alike(tensors, server.state, "The database")
    server.state = {name: tensors[name] for name in server.state}
    if isinstance(server.joining, Robust) and last is not None:
        server.joining.last = last.numpy()
    restore_history(server, held, kept.round)
    return server, dict(zip(devices, kept.devices[_VERSIONS], strict=True))


def restore_history(server: FederatedServer, held: Iterable[RoundChoices], rounds: int) -> None:
    """Let a server know of so many rounds that were held before it.

    A round that was committed, damaged and held again stands twice in the history: the later
    counts.
    """
    events = {each.round: each.choices for each in held if each.choices is not None}
    for number in range(1, rounds + 1):
        event = events[number]
        server.history.record(event["asked"], event["took_part"], server.table.counts)
        server.history.leave(event.get("spent", ()))
    if rounds:  # counts may have changed since: what was seen was true then
        server.history.seen[:] = events[rounds]["seen"]


def fresh_state_of_optimizers(gan: Gan) -> State:
    """What the optimizers of both networks keep before their first step."""
    networks = gan.build(seed=0)
    optimizers = gan.optimizers(networks)
    return fresh_optimizer_state(networks, optimizers)
