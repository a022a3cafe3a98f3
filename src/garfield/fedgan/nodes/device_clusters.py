"""Clusters for devices without labels, at the device: what it answers, and how it counts.

A device takes its features from its own copy of the network that the server names by its hash,
and refuses centroids of any other, of another shape, or with other numbers than were announced.

What it sends of its images before it is labelled are sums and counts, if its user was told so
(`AboutClusters.tells_sums`), of at least `LEAST` images each, and no more than `ROUNDS` + 1
different answers as long as it runs: to what was asked before it says what it said then, whichever
server asks. Counts are exact, of however few images, so they are told by one choice of centroids:
the first that is published.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from garfield.core.errors import InputError
from garfield.fedgan.cluster_features import own_features, published_extractor
from garfield.fedgan.clustering import ROUNDS, Floats64, PublishedClusters, asked_sums, digest_of
from garfield.fedgan.device import DeviceData
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.messages import About, ClusterNotice
from garfield.transport.contract import Payload


class DeviceClusters:
    """The images of one device, and what it says of their clusters."""

    def __init__(
        self, number: int, data: DeviceData, about: About,
        declares: Callable[[DeviceData], DeviceMetadata],
    ) -> None:  # fmt: skip
        """InputError if the features are none that this device has."""
        assert about.clusters is not None
        self._number, self._data, self._declares = number, data, declares
        self._clusters, self._tells_sums = len(about.classes), about.clusters.tells_sums
        if not len(data):
            raise InputError(f"device-{number} has no image: it cannot train. Leave it out.")
        extractor = published_extractor(about.clusters.key, about.image)
        self._key, self._features = extractor.key, own_features(data, extractor)
        self._answered: dict[tuple[str | None, int], Floats64] = {}
        self._counted_by: str | None = None  # the digest of the centroids that were published

    @property
    def length(self) -> int:
        """How many numbers all centroids have."""
        return self._clusters * self._features.shape[1]

    def check(self, server: str, notice: ClusterNotice) -> None:
        """Raise InputError unless this is what the training is about."""
        shape = (self._clusters, self._features.shape[1])
        if notice.key != self._key or notice.shape != shape:
            raise InputError(
                f"{server} publishes {notice.shape[0]} centroids of {notice.shape[1]} features by "
                f"{notice.key[:120]!r}, and the training is one of {shape[0]} of {shape[1]} by "
                f"{self._key!r}."
            )
        if not notice.final and not self._tells_sums:
            raise InputError(
                f"{server} asks for sums of features, and said before that it would not. Nothing "
                "is sent."
            )

    def centroids(self, server: str, notice: ClusterNotice, row: Payload) -> Tensor:
        """(K, d): what came with a notice, if it is what the notice says."""
        found = torch.tensor(row, dtype=torch.float32).reshape(notice.shape)
        if digest_of(found) != notice.digest:
            raise InputError(f"{server} sends other centroids than it has announced.")
        return found

    def sums(self, server: str, notice: ClusterNotice, centroids: Tensor | None) -> Floats64:
        """The answer to a question; the one before, if it was asked before."""
        asked = (notice.digest, notice.seed if centroids is None else 0)
        if asked not in self._answered:
            if len(self._answered) > ROUNDS:
                raise InputError(
                    f"{server} asks for sums once more, and {len(self._answered)} different ones "
                    "were sent. Nothing more is."
                )
            found = asked_sums(
                self._features, centroids, self._clusters, (notice.seed, self._number)
            )
            self._answered[asked] = found.as_row(self._clusters)
        return self._answered[asked]

    def labelled(self, server: str, centroids: Tensor) -> tuple[DeviceData, DeviceMetadata]:
        """The images by the nearest of these, and what the device declares then.

        By these alone from then on: counts by other centroids would be another question about its
        images, and noise that is drawn for each of them could be averaged away.
        """
        digest = digest_of(centroids)
        if self._counted_by not in (None, digest):
            raise InputError(
                f"{server} publishes centroids {digest[:12]}, and images were counted by "
                f"{self._counted_by:.12} already: they are not counted again. Start this device "
                "again if it is to take part in another training."
            )
        self._counted_by = digest
        published = PublishedClusters(self._key, centroids)
        data = self._data.labelled(published.labels(self._features, self._key))
        return data, self._declares(data)
