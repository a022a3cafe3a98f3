"""What servers and devices say to each other, and what is believed of it.

    ("fedgan-about", 0)              server    which networks, images and classes
    ("fedgan-turn", turn)            server    who trains in this turn, or that all is over
    ("fedgan-task", turn, device)    server    what that device does
    ("fedgan-state", turn)           server    the learning state to begin from
    ("fedgan-clusters", turn)        server    by which features images are told apart, and whether
                                               sums are asked for (`server_clusters.py`)
    ("fedgan-centroids", turn)       server    the centroids of these clusters
    ("fedgan-metadata", version)     device    samples per class, memory, compute; nothing else
    ("fedgan-report", turn)          device    its losses, and which metadata hold now
    ("fedgan-update", turn)          device    the learning state that it has come to
    ("fedgan-sums", turn)            device    counts and sums of its features by cluster, if asked

Documents are JSON, bounded and checked by the transport (`transport/documents.py`); here is what
stands in them. States are vectors (`state_vector.py`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from garfield.core.bounds import shown
from garfield.core.errors import InputError
from garfield.transport.contract import NEWEST, Key, VectorKind, declare_kind
from garfield.transport.documents import Document, DocumentKind

_FOR_EVER = 1 << 61  # steps: more than there are turns
FIRST_VERSIONS = 1 << 19
"""What a device declares first has a version below: it is no turn's, or an outbox would take all
that is asked for in an earlier turn for gone."""
_LARGEST_LOSS = 1e300  # the mean of any number of them is finite
_DIGEST = re.compile(r"[0-9a-f]{64}")

ABOUT = declare_kind(DocumentKind("fedgan-about", kept_steps=_FOR_EVER, most_bytes=32_768))
TURN = declare_kind(DocumentKind("fedgan-turn", most_bytes=16_384))
TASK = declare_kind(DocumentKind("fedgan-task", most_bytes=512))
STATE = declare_kind(VectorKind("fedgan-state", kept_steps=1))
CLUSTERS = declare_kind(DocumentKind("fedgan-clusters", kept_steps=_FOR_EVER, most_bytes=1024))
CENTROIDS = declare_kind(VectorKind("fedgan-centroids", kept_steps=_FOR_EVER))
METADATA = declare_kind(DocumentKind("fedgan-metadata", kept_steps=_FOR_EVER, most_bytes=16_384))
REPORT = declare_kind(DocumentKind("fedgan-report", most_bytes=512))
UPDATE = declare_kind(VectorKind("fedgan-update", kept_steps=1))
SUMS = declare_kind(VectorKind("fedgan-sums", dtype=np.dtype(np.float64), kept_steps=1))

SERVERS_SAY = frozenset(
    {ABOUT.name, TURN.name, TASK.name, STATE.name, CLUSTERS.name, CENTROIDS.name}
)
DEVICES_SAY = frozenset({METADATA.name, REPORT.name, UPDATE.name, SUMS.name})


def later_than(turn: int) -> Key:
    """Of whichever turn is the newest, if it is later than that one."""
    return Key(TURN.name, NEWEST, turn + 1)


@dataclass(frozen=True)
class AboutClusters:
    """What a device without labels must know before it takes part."""

    key: str
    """Of the features that clusters are of: it holds the hash of their network's weights."""
    tells_sums: bool
    """Clusters are fitted to sums that devices send; else nothing but counts is asked for."""

    @staticmethod
    def read(content: Any) -> AboutClusters:
        """What a server has sent, checked."""
        if not isinstance(content, dict) or set(content) != {"key", "tells_sums"}:
            raise InputError(f"Clusters have a key, and tell sums or not, got {shown(content)}.")
        if not isinstance(content["key"], str) or type(content["tells_sums"]) is not bool:
            raise InputError(f"Clusters have a key, and tell sums or not, got {shown(content)}.")
        return AboutClusters(content["key"], content["tells_sums"])


@dataclass(frozen=True)
class About:
    """What a device must know to take part, whatever it has been told by its own user."""

    gan: str
    """A name with parameters, as in ``lsgan(width=0.25)``."""
    image: tuple[int, int, int]
    """(channels, height, width)"""
    classes: tuple[str, ...]
    conditional: bool
    optimizer_state: str
    secure_aggregation: bool = False
    clusters: AboutClusters | None = None
    """Devices have no labels: `classes` are names of clusters."""

    def as_json(self) -> Document:
        """What is sent."""
        return {**asdict(self), "image": list(self.image), "classes": list(self.classes)}

    @staticmethod
    def read(content: Document) -> About:
        """What a server has sent, checked."""
        fields = {field.name for field in dataclasses.fields(About)}
        if set(content) != fields:
            raise InputError(f"This does not say what is trained: {shown(content)}.")
        image, classes = content["image"], content["classes"]
        whole = isinstance(image, list) and len(image) == 3
        if not whole or not all(type(n) is int and 1 <= n <= 4096 for n in image):
            raise InputError(f"Images are channels, height and width, got {shown(image)}.")
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise InputError(f"Classes are names, got {shown(classes)}.")
        for name in ("gan", "optimizer_state"):
            if not isinstance(content[name], str):
                raise InputError(f"{name} is a text, got {shown(content[name])}.")
        clusters = content["clusters"]
        return About(
            content["gan"], (image[0], image[1], image[2]), tuple(classes),
            content["conditional"] is True, content["optimizer_state"],
            content["secure_aggregation"] is True,
            None if clusters is None else AboutClusters.read(clusters),
        )  # fmt: skip


@dataclass(frozen=True)
class Announcement:
    """Who trains in a turn, or that there will be no more."""

    round: int
    devices: frozenset[int] = frozenset()
    ended: str | None = None
    """Why it is over; None as long as it is not."""
    clusters: int | None = None
    """The turn whose clusters hold, for devices without labels; who has not seen to them does so
    before anything else."""

    def as_json(self) -> Document:
        """What is sent."""
        return {
            "round": self.round, "devices": sorted(self.devices), "ended": self.ended,
            "clusters": self.clusters,
        }  # fmt: skip

    @staticmethod
    def read(content: Document) -> Announcement:
        """What a server has sent, checked."""
        if set(content) != {"round", "devices", "ended", "clusters"}:
            raise InputError(f"This announces nothing: {shown(content)}.")
        number, devices, ended = content["round"], content["devices"], content["ended"]
        if type(number) is not int or number < 0 or not isinstance(devices, list):
            raise InputError(f"A round has a number and devices, got {shown(content)}.")
        if not all(type(device) is int and device >= 0 for device in devices):
            raise InputError(f"Devices are numbers, got {shown(devices)}.")
        if ended is not None and not isinstance(ended, str):
            raise InputError(f"A training ends with a reason, got {shown(ended)}.")
        clusters = content["clusters"]
        if clusters is not None and not (type(clusters) is int and 0 < clusters < NEWEST):
            raise InputError(f"Clusters are those of a turn, got {shown(clusters)}.")
        return Announcement(number, frozenset(devices), ended, clusters)


@dataclass(frozen=True)
class ClusterNotice:
    """What a server says beside centroids: of which features they are, and what it wants."""

    key: str
    """Of the extractor, which holds the hash of its weights."""
    shape: tuple[int, int]
    """Clusters and features of each."""
    digest: str | None
    """Of the centroids (`clustering.digest_of`). None: there are none, and devices are asked for
    sums by clusters that each finds by itself."""
    final: bool
    """They are published: devices count their images by them. Else they are asked for sums."""
    seed: int
    """From which devices draw with their number, where they find clusters by themselves."""

    def as_json(self) -> Document:
        """What is sent."""
        return {**asdict(self), "shape": list(self.shape)}

    @staticmethod
    def read(content: Document) -> ClusterNotice:
        """What a server has sent, checked."""
        if set(content) != {field.name for field in dataclasses.fields(ClusterNotice)}:
            raise InputError(f"This tells of no clusters: {shown(content)}.")
        key, shape, digest = content["key"], content["shape"], content["digest"]
        final, seed = content["final"], content["seed"]
        if not isinstance(key, str):
            raise InputError(f"Features are named by a text, got {shown(key)}.")
        whole = isinstance(shape, list) and len(shape) == 2
        if not whole or not all(type(n) is int and 1 <= n < 1 << 16 for n in shape):
            raise InputError(f"Centroids are rows of features, got {shown(shape)} of them.")
        if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise InputError(f"Centroids have a SHA-256, got {shown(digest)}.")
        if type(final) is not bool or (final and digest is None):
            raise InputError("Clusters that are published have centroids.")
        if type(seed) is not int or not 0 <= seed < 1 << 63:
            raise InputError(f"A seed is a whole number of 63 bits, got {shown(seed)}.")
        return ClusterNotice(key, (shape[0], shape[1]), digest, final, seed)


@dataclass(frozen=True)
class Report:
    """What a device tells beside its state."""

    generator_loss: float
    discriminator_loss: float
    metadata: int
    """The version of its metadata that holds now."""
    epsilon: float | None = None
    """What it has spent of its privacy so far, if it keeps an account."""
    spent: bool = False
    """It takes no part any more: it cannot pay for another such task, or not for this one."""

    def as_json(self) -> Document:
        """What is sent; a loss that is no number is no report, and its state no state."""
        return {
            "generator_loss": _finite(self.generator_loss),
            "discriminator_loss": _finite(self.discriminator_loss),
            "metadata": self.metadata, "epsilon": self.epsilon, "spent": self.spent,
        }  # fmt: skip

    @staticmethod
    def read(name: str, content: Any) -> Report:
        """What a device of that name has sent, checked."""
        if set(content) != {field.name for field in dataclasses.fields(Report)}:
            raise InputError(f"{name} must report losses and metadata, got {shown(content)}.")
        for loss in (content["generator_loss"], content["discriminator_loss"]):
            number_like = isinstance(loss, (int, float)) and not isinstance(loss, bool)
            if not number_like or abs(loss) > _LARGEST_LOSS:
                raise InputError(f"{name} reports a loss of {shown(loss)}.")
        version = content["metadata"]
        if type(version) is not int or not 0 <= version < _FOR_EVER:
            raise InputError(f"{name} reports metadata of version {shown(version)}.")
        epsilon = content["epsilon"]
        whole = type(epsilon) in (int, float) and math.isfinite(epsilon) and epsilon >= 0
        if epsilon is not None and not whole:
            raise InputError(f"{name} reports to have spent {shown(epsilon)} of its privacy.")
        return Report(
            float(content["generator_loss"]), float(content["discriminator_loss"]), version,
            None if epsilon is None else float(epsilon), content["spent"] is True,
        )  # fmt: skip


def _finite(loss: float) -> float:
    if math.isnan(loss):
        return _LARGEST_LOSS
    return max(-_LARGEST_LOSS, min(loss, _LARGEST_LOSS))
