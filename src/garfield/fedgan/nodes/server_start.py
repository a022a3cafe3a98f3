"""What a server leads from: what devices say that they have, or what was committed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from garfield.fedgan.assembling import refuse_missing_classes
from garfield.fedgan.clustering import PublishedClusters
from garfield.fedgan.gan import Gan
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes.answers import check_all_joined, pull_metadata
from garfield.fedgan.nodes.committed import clusters_of, new_server, restored_server
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.server_clusters import ServerClusters
from garfield.fedgan.server import FederatedServer
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import LearningState, RoundChoices
from garfield.transport.contract import Transport

Begun = tuple[FederatedServer, dict[str, int]]
"""A server, and versions of what its devices declare."""


@dataclass(frozen=True)
class ServerStart:
    """How one server begins to lead. `turns` makes the next turn, wherever one is asked for."""

    transport: Transport
    devices: Sequence[str]
    gan: Gan
    about: About
    settings: FedganSettings
    clusters: ServerClusters | None
    public_clusters: Callable[[], PublishedClusters] | None
    """Fits clusters without asking devices."""
    join_s: float
    """For all devices to say what they have."""

    def anew(self, turns: Callable[[], int]) -> Begun:
        """Hear what all devices have.

        QuorumError if some say nothing, InputError if they lie, ConfigError if that cannot do.
        """
        least = 0
        if self.clusters is not None:
            least = self._publish_clusters(self.clusters, turns)
        told = pull_metadata(self.transport, self.devices, self.join_s, least)
        check_all_joined(self.devices, told.replies, self.join_s)
        classes = len(self.about.classes)
        declared = [
            DeviceMetadata.read(name, told.documents[name], classes) for name in self.devices
        ]
        if self.clusters is not None:
            self.clusters.check_declared(declared)
        table = MetadataTable.of(declared, self.devices)
        refuse_missing_classes(table, self.settings, self.about.classes)
        server = new_server(self.gan, self.about, self.settings, table)
        return server, {name: told.replies.steps[name] for name in self.devices}

    def again(
        self, kept: LearningState, held: Iterable[RoundChoices], turns: Callable[[], int]
    ) -> Begun:
        """Go on from what another server, or this one before, has committed."""
        if self.clusters is not None:
            self.clusters.publish(clusters_of(kept), turns())
        return restored_server(kept, held, self.gan, self.about, self.settings, self.devices)

    def _publish_clusters(self, clusters: ServerClusters, turns: Callable[[], int]) -> int:
        """Let clusters be found, and publish them; the turn of which that is."""
        if self.public_clusters is not None:
            published = self.public_clusters()
        else:
            published = clusters.fit(turns, self.join_s)
        at = turns()
        clusters.publish(published, at)
        return at
