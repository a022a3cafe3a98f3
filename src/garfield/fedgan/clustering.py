"""Devices without labels: they count their images by cluster, against centroids that all share.

Clusters that each device finds by itself do not align: one device's cluster 3 is another's 7. So
the server publishes K centroids *together with the feature extractor* they belong to, by name and
key (the key holds the hash of its weights, `cluster_features.py`); each device gives every image
the number of the nearest centroid and declares how many it has of each. From there on clusters are
classes: sampling, weights and conditional networks take them as they take labels.

Centroids are fitted without any public image, by sums that devices send (`federated_centroids`):

1. Each device clusters its own features and sends, for each cluster it found, sum and count. The
   server clusters these means by weight: k-FED, Dennis, Li and Smith, ICML 2021.
2. Up to `ROUNDS` times, each device sends sum and count of its features nearest to each centroid,
   and the server divides: Lloyd's algorithm, step by step what it would do on all images together.

**What that costs.** Sums and counts are no images, but a sum over few images tells much of them:
over one image it is that image's features. So nothing is sent of a cluster in which a device has
fewer than `LEAST` images. What is sent is *not* differentially private, up to `ROUNDS` + 1 times.
Centroids that the server fits to public images (`--public-images`) cost nothing, and are asked for
where privacy is promised by an epsilon. Nor does anything here bear devices that lie: one of them
can move any centroid by the sum that it claims. What no honest device sends (fewer images than
`LEAST`, a mean that no image has, more images than a device has) is refused (`ClusterSums.read`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from garfield.core.bounds import shown
from garfield.core.errors import InputError
from garfield.fedgan.metadata import MOST_SAMPLES

LEAST = 5
"""A device sends nothing of a cluster in which it has fewer images than that."""
ROUNDS = 10
"""How often devices send sums at most, after the first time."""

_STARTS = 8  # k-means is begun so often, and the best is taken
_LOCAL_STEPS = 10
_BATCH = 1000
_ROUNDING = 1e-4  # by which a mean of float32 may be beyond the largest of them

Floats64: TypeAlias = npt.NDArray[np.float64]


def cluster_names(clusters: int) -> tuple[str, ...]:
    """What takes the place of the names of classes."""
    return tuple(f"cluster {number}" for number in range(clusters))


@dataclass(frozen=True, eq=False)
class PublishedClusters:
    """What the server publishes: centroids, and the features that they are centroids of."""

    key: str
    """The extractor's, which holds the hash of its weights."""
    centroids: Tensor
    """(K, d) float32"""

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def names(self) -> tuple[str, ...]:
        """What takes the place of the names of classes."""
        return cluster_names(len(self))

    def labels(self, features: Tensor, key: str) -> Tensor:
        """(n,) int64: the nearest centroid of each row of a device's features."""
        if key != self.key or features.shape[1:] != self.centroids.shape[1:]:
            raise InputError(
                f"The centroids are of {self.centroids.shape[1]} features by {self.key!r}, and "
                f"these are {features.shape[-1]} by {key!r}. Take the extractor that was published."
            )
        return nearest(features, self.centroids)

    def as_json(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {"key": self.key, "centroids": self.centroids.tolist()}

    @staticmethod
    def read(content: Any) -> PublishedClusters:
        """What a run has kept, checked."""
        if not isinstance(content, Mapping) or set(content) != {"key", "centroids"}:
            raise InputError(f"These are no published clusters: {shown(content)}.")
        try:
            centroids = torch.tensor(content["centroids"], dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError):
            raise InputError("Centroids must be rows of numbers, all of one length.") from None
        if centroids.ndim != 2 or len(centroids) < 2 or not centroids.isfinite().all():
            raise InputError(
                "Centroids must be at least 2 rows of finite numbers, got "
                f"{tuple(centroids.shape)}."
            )
        return PublishedClusters(str(content["key"]), centroids)


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """All that a device sends for centroids to be fitted."""

    sums: Tensor
    """(k, d) float64: of the features of its images in each cluster."""
    counts: Tensor
    """(k,) int64; 0, with a sum of 0, also where it has fewer than LEAST."""

    @staticmethod
    def of(features: Tensor, centroids: Tensor, least: int = LEAST) -> ClusterSums:
        """Sums and counts of a device's features (n, d) by the nearest centroid."""
        at = nearest(features, centroids)
        counts = torch.bincount(at, minlength=len(centroids))
        sums = torch.zeros(centroids.shape, dtype=torch.float64)
        sums.index_add_(0, at, features.double())
        told = counts >= least
        return ClusterSums(sums * told[:, None], counts * told)

    def as_row(self, clusters: int) -> Floats64:
        """What is sent: clusters · (1 + d) numbers, of each cluster its count and its sums."""
        row = np.zeros((clusters, 1 + self.sums.shape[1]))
        row[: len(self.counts), 0] = self.counts
        row[: len(self.counts), 1:] = self.sums
        return row.reshape(-1)

    @staticmethod
    def read(name: str, row: Floats64, clusters: int, most: float) -> ClusterSums:
        """What a device of that name has sent; InputError if no honest one sends it.

        `most` is the extractor's: no image has a larger feature, so no mean of images has.
        """
        table = row.reshape(clusters, -1)
        counts, sums = table[:, 0], table[:, 1:]
        for cluster, count in enumerate(counts.tolist()):
            if not count.is_integer() or count < 0 or 0 < count < LEAST:
                raise InputError(
                    f"{name} sends a sum of {shown(count)} images for cluster {cluster}. It is of "
                    f"none, or of at least {LEAST}."
                )
        if counts.sum() > MOST_SAMPLES:
            raise InputError(
                f"{name} sends sums of {counts.sum():.8g} images, more than the {MOST_SAMPLES} "
                "that a device is believed to have."
            )
        beyond = (np.abs(sums) > counts[:, None] * most * (1 + _ROUNDING)).any(axis=1)
        if beyond.any():
            cluster = int(np.argmax(beyond))
            raise InputError(
                f"{name} sends a sum for cluster {cluster} that no {counts[cluster]:.0f} images "
                f"have: of each, a feature is at most {most:.4g} in size."
            )
        return ClusterSums(torch.tensor(sums), torch.tensor(counts).long())


Ask: TypeAlias = Callable[[Tensor | None], Sequence[ClusterSums]]
"""Has all devices send sums: by the nearest of these centroids, or by clusters of their own."""


def federated_centroids(features: Sequence[Tensor], clusters: int, seed: int) -> Tensor:
    """(clusters, d): fitted to all devices' features by what each of them may send.

    With the features of public images as the only ones, it is plain k-means on these.
    """

    def ask(centroids: Tensor | None) -> list[ClusterSums]:
        return [
            asked_sums(rows, centroids, clusters, (seed, number))
            for number, rows in enumerate(features)
        ]

    return fitted_centroids(ask, clusters, seed)


def fitted_centroids(ask: Ask, clusters: int, seed: int) -> Tensor:
    """(clusters, d): what the server comes to, however it asks."""
    centroids = first_centroids(ask(None), clusters, np.random.default_rng(seed))
    for _ in range(ROUNDS):
        moved = next_centroids(centroids, ask(centroids))
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids


def asked_sums(
    features: Tensor, centroids: Tensor | None, clusters: int, seed: tuple[int, int]
) -> ClusterSums:
    """What a device sends when it is asked; the seed is the training's and the device's number."""
    if centroids is None:
        return local_sums(features, clusters, np.random.default_rng(seed))
    return ClusterSums.of(features, centroids)


def local_sums(features: Tensor, clusters: int, rng: np.random.Generator) -> ClusterSums:
    """What a device sends first: of clusters that it finds by itself, as many as it can fill."""
    k = min(clusters, len(features) // LEAST)
    if k == 0:
        none = torch.zeros(0, features.shape[1], dtype=torch.float64)
        return ClusterSums(none, torch.zeros(0, dtype=torch.int64))
    return ClusterSums.of(features, _k_means(features, torch.ones(len(features)), k, rng))


def first_centroids(sent: Sequence[ClusterSums], clusters: int, rng: np.random.Generator) -> Tensor:
    """The server's first centroids: the means that devices sent, clustered by weight."""
    counts = torch.cat([each.counts for each in sent])
    sums = torch.cat([each.sums for each in sent])
    means = (sums[counts > 0] / counts[counts > 0, None]).float()
    distinct = len(torch.unique(means, dim=0))
    if distinct < clusters:
        raise InputError(
            f"{clusters} clusters were asked for, and devices sent {distinct} different means of "
            f"at least {LEAST} images each. Ask for fewer: --clusters {max(distinct, 2)}, or give "
            "--public-images."
        )
    return _k_means(means, counts[counts > 0].float(), clusters, rng)


def next_centroids(centroids: Tensor, sent: Sequence[ClusterSums]) -> Tensor:
    """The means of what was sent; a centroid of which nothing was sent stays."""
    counts = torch.stack([each.counts for each in sent]).sum(0)
    sums = torch.stack([each.sums for each in sent]).sum(0)
    means = (sums / counts.clamp_min(1)[:, None]).float()
    return torch.where(counts[:, None] > 0, means, centroids)


def digest_of(centroids: Tensor) -> str:
    """By which centroids are told from others: SHA-256 of their numbers."""
    return sha256(centroids.contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def nearest(features: Tensor, centroids: Tensor) -> Tensor:
    """(n,) the nearest centroid of each row; of two equally near ones the first."""
    parts = [torch.cdist(rows, centroids).argmin(1) for rows in torch.split(features, _BATCH)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def _k_means(rows: Tensor, weight: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    """Lloyd's algorithm from k-means++ (Arthur and Vassilvitskii, 2007), best of some starts."""
    best: tuple[float, Tensor] | None = None
    for _ in range(_STARTS):
        centroids = _spread(rows, weight, k, rng)
        for _ in range(_LOCAL_STEPS):
            at = nearest(rows, centroids)
            mass = torch.zeros(k).index_add_(0, at, weight)
            sums = torch.zeros(k, rows.shape[1]).index_add_(0, at, rows * weight[:, None])
            centroids = torch.where(
                mass[:, None] > 0, sums / mass.clamp_min(1e-9)[:, None], centroids
            )
        cost = float((torch.cdist(rows, centroids).amin(1).square() * weight).sum())
        if best is None or cost < best[0]:
            best = cost, centroids
    assert best is not None
    return best[1]


def _spread(rows: Tensor, weight: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    """k of the rows, drawn by their squared distance from those drawn before."""
    chance = weight.double().numpy()
    chosen = [int(rng.choice(len(rows), p=chance / chance.sum()))]
    for _ in range(k - 1):
        near = torch.cdist(rows, rows[chosen]).amin(1).double().square().numpy() * chance
        # rows that are all alike: any will do
        share = near / near.sum() if near.sum() > 0 else chance / chance.sum()
        chosen.append(int(rng.choice(len(rows), p=share)))
    return rows[chosen].clone()
