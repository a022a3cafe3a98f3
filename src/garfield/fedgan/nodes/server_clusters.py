"""Clusters for devices without labels, at the server: fitted with the devices, and published.

    with public images    ─▶ fit alone ─────────────────────────────────┐
    without               ─▶ ask for sums ─▶ divide ─▶ ask again … ─────┴─▶ publish ─▶ counts

Every question, and what is published in the end, has a turn of its own, which is announced as
rounds are: so devices follow the newest leader here too, and a server that takes over before the
first commit asks from the beginning. They then answer what they answered before, and no more
often (`device_clusters.py`). From the first commit on centroids are part of the state.

What a device declares counts only if it declares it by the clusters that were published last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.cluster_features import own_features, published_extractor
from garfield.fedgan.clustering import ClusterSums, PublishedClusters, digest_of, fitted_centroids
from garfield.fedgan.device import DeviceData
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.answers import pull_sums
from garfield.fedgan.nodes.messages import (
    CENTROIDS,
    CLUSTERS,
    TURN,
    About,
    Announcement,
    ClusterNotice,
)
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, Transport


class ServerClusters:
    """What one server says of clusters, and hears."""

    def __init__(
        self, transport: Transport, outbox: Outbox, devices: Sequence[str], about: About, seed: int
    ) -> None:
        """Of a training that is `about` clusters."""
        assert about.clusters is not None
        self._transport, self._outbox, self._devices = transport, outbox, list(devices)
        self._key, self._image, self._seed = about.clusters.key, about.image, seed
        self._clusters = len(about.classes)
        self._summed: dict[str, int] = {}  # images, the most that a device's sums were of
        self.published: PublishedClusters | None = None
        self.turn: int | None = None
        """Under which they are published."""

    def fit(self, turns: Callable[[], int], timeout_s: float) -> PublishedClusters:
        """Clusters fitted to sums that all devices send; who lies, or is silent, ends it by name.

        `turns` makes the next turn; devices have so long for each answer.
        """
        extractor = published_extractor(self._key, self._image)
        none = DeviceData.unlabelled(torch.zeros(0, *self._image))
        shape = (self._clusters, own_features(none, extractor).shape[1])

        def ask(centroids: Tensor | None) -> list[ClusterSums]:
            at = turns()
            self._say(at, shape, centroids, final=False)
            sent = pull_sums(self._transport, self._devices, at, shape, extractor.most, timeout_s)
            for name, sums in zip(self._devices, sent, strict=True):
                self._summed[name] = max(self._summed.get(name, 0), int(sums.counts.sum()))
            return sent

        return PublishedClusters(self._key, fitted_centroids(ask, self._clusters, self._seed))

    def publish(self, published: PublishedClusters, at: int) -> None:
        """Let devices count their images by these from now on."""
        if published.key != self._key or len(published) != self._clusters:
            raise ConfigError(
                f"The training has {len(published)} clusters of features by {published.key!r}, and "
                f"this server knows {self._clusters} by {self._key!r}. Take the version of the "
                "library that began it."
            )
        shape = (self._clusters, published.centroids.shape[1])
        self._say(at, shape, published.centroids, final=True)
        self.published, self.turn = published, at

    def check_declared(self, declared: Sequence[DeviceMetadata]) -> None:
        """Raise InputError if a device has moved centroids by more images than it says it has."""
        for name, each in zip(self._devices, declared, strict=True):
            if sum(each.samples) < self._summed.get(name, 0):
                raise InputError(
                    f"{name} has sent sums of {self._summed[name]} images, and declares "
                    f"{sum(each.samples)}. Leave it out."
                )

    def _say(self, at: int, shape: tuple[int, int], centroids: Tensor | None, final: bool) -> None:
        """The announcement last: whoever hears of it finds the rest."""
        digest = None
        if centroids is not None:
            digest = digest_of(centroids)
            self._outbox.publish(Key(CENTROIDS.name, at), centroids.reshape(-1).numpy())
        notice = ClusterNotice(self._key, shape, digest, final, self._seed)
        self._outbox.publish(Key(CLUSTERS.name, at), CLUSTERS.to_payload(notice.as_json()))
        announced = Announcement(0, clusters=at)
        self._outbox.publish(Key(TURN.name, at), TURN.to_payload(announced.as_json()))
