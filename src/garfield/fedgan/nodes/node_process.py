"""What the process of a server, or of a device, does from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from garfield.core.config import made
from garfield.fedgan.averaging import State, network_state
from garfield.fedgan.cluster_features import published_extractor
from garfield.fedgan.clustering import PublishedClusters
from garfield.fedgan.device import DeviceData, Trainer, Training
from garfield.fedgan.gan import Gan
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.networks import gan_for
from garfield.fedgan.nodes.committed import fresh_state_of_optimizers
from garfield.fedgan.nodes.device_clusters import DeviceClusters
from garfield.fedgan.nodes.device_node import DeviceLimits, DeviceNode
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.server_node import ServerLimits, ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings, PrivacySettings
from garfield.fedgan.state import open_state_database
from garfield.runs import user_files
from garfield.runs.process import use_threads
from garfield.runs.supervised import Channel
from garfield.transport.certs import load
from garfield.transport.connect import grpc_transport
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import DIALS_IN, PeerAddress


@dataclass(frozen=True)
class Wiring:
    """How a node is reached, and whom it trusts."""

    servers: tuple[str, ...]
    devices: tuple[str, ...]
    certificates: str | None
    """A directory, as `garfield certs` makes it; None: no TLS, and loopback only."""
    same_host: str | None = None
    """A directory that nodes of one host share, to pass long vectors without copying."""
    files: tuple[str, ...] = ()
    """Python files of the user's, which register networks."""

    def transport(
        self, name: str, servers_at: Mapping[str, str], listen: str | None = None
    ) -> GrpcTransport:
        """A server that listens there, or a device that dials the servers."""
        peers = {server: PeerAddress(at, "server") for server, at in servers_at.items()}
        peers |= {device: PeerAddress(DIALS_IN, "device") for device in self.devices}
        credentials = None if self.certificates is None else load(self.certificates, name)
        return grpc_transport(
            name, peers, listen=listen, credentials=credentials, same_host=self.same_host,
            dials=() if listen else self.servers, takes_links=listen is not None,
        )  # fmt: skip


def server_limits(settings: FedganSettings) -> ServerLimits:
    """What the settings say of waiting."""
    given = settings.processes
    return ServerLimits(
        round_s=given.round_timeout_s, late=given.late_devices, join_s=given.join_timeout_s,
        lease_s=given.lease_s,
    )  # fmt: skip


def run_server(
    channel: Channel, values: dict[str, Any], about: About, wiring: Wiring, where: str, run: str,
    listen: str,
) -> None:  # fmt: skip
    """Be the server of that name, beside its supervisor."""
    use_threads(1, ("torch",))
    load_files(wiring.files)
    settings = made(FedganSettings, values)
    database = open_state_database(where, run)
    transport = wiring.transport(channel.name, {}, listen=listen)
    try:
        node = ServerNode(
            channel.name, gan_of(about), about, settings, transport, wiring.devices, database,
            server_limits(settings), public_clusters(about, settings),
        )  # fmt: skip
        channel.send({"event": "address", "node": channel.name, "address": transport.address})
        node.run()
        channel.send({"event": "done", "node": channel.name})
    finally:
        transport.close()
        database.close()


def run_device(
    channel: Channel, values: dict[str, Any], about: About, wiring: Wiring,
    servers_at: dict[str, str], number: int, accounts: str,
) -> None:  # fmt: skip
    """Be one of the devices among which a data set is divided."""
    from garfield.fedgan.image_data import dataset_for, devices_of
    from garfield.fedgan.simulation import declared_by

    use_threads(1, ("torch",))
    load_files(wiring.files)
    settings = made(FedganSettings, values)
    own = devices_of(dataset_for(settings), settings)[number]
    classes = len(about.classes)
    channel.send({"event": "joins", "node": channel.name})
    give_up_s = settings.processes.join_timeout_s + 10 * settings.processes.round_timeout_s
    account = Path(accounts) / f"{channel.name}.json"
    trainer = trainer_of(about, settings.privacy, account, len(own))
    why = take_part(
        number, channel.name, about, trainer, own,
        lambda data: declared_by(number, data, classes, settings), wiring, servers_at, give_up_s,
    )  # fmt: skip
    channel.send({"event": "left", "node": channel.name, "why": why})


def public_clusters(
    about: About, settings: FedganSettings
) -> Callable[[], PublishedClusters] | None:
    """How a server fits clusters to public images, if it has some; devices are not asked then."""
    from garfield.fedgan.image_data import fitted_to_public

    clusters = about.clusters
    if clusters is None or clusters.tells_sums:
        return None
    return lambda: fitted_to_public(
        settings, about.image, published_extractor(clusters.key, about.image)
    )


def load_files(files: Iterable[str]) -> None:
    """Import the user's own files, in this process too."""
    for file in files:
        user_files.load(Path(file))


def trainer_of(about: About, limits: PrivacySettings, account: Path, samples: int) -> Training:
    """What a device of so many images trains with.

    An account of its privacy is kept in that file, if it has any; ConfigError for a budget that
    means nothing.
    """
    gan = gan_of(about)
    if limits.dp_epsilon is None:
        return Trainer(gan)
    from garfield.fedgan.differential_privacy import (
        PrivacyAccount,
        PrivateNetworks,
        PrivateTrainer,
        check_budget,
    )

    check_budget(limits, samples)
    account.parent.mkdir(parents=True, exist_ok=True)
    return PrivateTrainer(PrivateNetworks(gan, limits), PrivacyAccount(limits, path=account))


def take_part(
    number: int, name: str, about: About, trainer: Training, data: DeviceData,
    declares: Callable[[DeviceData], DeviceMetadata], wiring: Wiring,
    servers_at: Mapping[str, str], give_up_s: float, version: int = 0,
) -> str:  # fmt: skip
    """Train whenever chosen, until it is over; why it is.

    `declares` says what data are declared as, once they have labels or clusters; with labels, as
    that version first.
    """
    gan = gan_of(about)
    metadata: DeviceMetadata | DeviceClusters
    if about.clusters is None:
        metadata = declares(data)
    else:
        metadata = DeviceClusters(number, data, about, declares)
    transport = wiring.transport(name, servers_at)
    try:
        node = DeviceNode(
            number, trainer, data, transport, wiring.servers,
            layout=StateLayout.of(first_state(gan, about)), metadata=metadata,
            limits=DeviceLimits(give_up_s=give_up_s), secure=about.secure_aggregation,
            version=version,
        )  # fmt: skip
        return node.run()
    finally:
        transport.close()


def gan_of(about: About) -> Gan:
    """The networks that are trained."""
    classes = len(about.classes) if about.conditional else None
    return gan_for(about.gan, about.image, classes=classes)


def first_state(gan: Gan, about: About) -> State:
    """A state as it travels: with what optimizers keep, where that is averaged too."""
    state = network_state(gan.build(seed=0))
    return state | fresh_state_of_optimizers(gan) if about.optimizer_state == "average" else state
