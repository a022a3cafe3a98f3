"""Nodes that are started by hand, each on its own machine: a device with data, a server that waits.

A device is told by the first server it reaches which networks are trained, on which images and
classes; all else is its own: its data, its name and its certificate. A further server finds
what it needs in the state database, once the training has begun.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from garfield.core.config import made
from garfield.core.errors import InputError, RunError, UnknownName
from garfield.data import Dataset
from garfield.fedgan.device import DeviceData
from garfield.fedgan.metadata import DeviceMetadata, NoisedCounts
from garfield.fedgan.nodes.committed import devices_of
from garfield.fedgan.nodes.device_terms import DeviceTerms
from garfield.fedgan.nodes.messages import ABOUT, FIRST_VERSIONS, About
from garfield.fedgan.nodes.names import device_number
from garfield.fedgan.nodes.node_process import (
    Wiring,
    gan_of,
    server_limits,
    take_part,
    trainer_of,
)
from garfield.fedgan.nodes.server_node import ServerNode
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import LearningState, StateDatabase
from garfield.transport.contract import Key, first
from garfield.transport.documents import pull_documents

_LOOK_S = 0.5


def join_as_device(
    name: str,
    number: int,
    servers: Sequence[str],
    data: Callable[[About], DeviceData],
    terms: DeviceTerms,
    *,
    certificates: Path | None,
    give_up_s: float = 600.0,
    tell: Callable[[str], None] = lambda line: None,
) -> str:
    """Be a device until the training is over; why it is.

    `servers` are addresses, of server-0, server-1 and so on; `data` finds this device's samples
    once it is known what is trained.
    """
    servers_at = {f"server-{k}": address for k, address in enumerate(servers)}
    wiring = Wiring(tuple(servers_at), (name,), None if certificates is None else str(certificates))
    about = _heard(name, wiring, servers_at, give_up_s)
    terms.check(about)
    own = data(about)
    counts = NoisedCounts(terms.noise_epsilon)

    def declares(data: DeviceData) -> DeviceMetadata:
        there = counts.of(data.class_counts(len(about.classes)))
        found = DeviceMetadata(there, terms.memory_mb, terms.compute)
        found.check(name, len(about.classes))
        return found

    if about.clusters is None:
        declares(own)  # what cannot be declared is told before anything is built
    tell(f"{name} takes part in {about.gan} with {len(own)} images.{_told_of(about)}")
    trainer = trainer_of(about, terms.privacy, terms.account or Path(), len(own))
    # another one than at an earlier start: data may have changed since
    version = secrets.randbelow(FIRST_VERSIONS)
    return take_part(
        number, name, about, trainer, own, declares, wiring, servers_at, give_up_s, version
    )


def _told_of(about: About) -> str:
    """What its user is told of clusters."""
    if about.clusters is None:
        return ""
    told = f" Labels are not looked at: images are counted by {len(about.classes)} clusters"
    if about.clusters.tells_sums:
        return f"{told}, fitted to sums of their features that devices send."
    return f"{told} of the server's public images."


def _heard(name: str, wiring: Wiring, servers_at: dict[str, str], give_up_s: float) -> About:
    """What is trained, by whichever server answers first."""
    transport = wiring.transport(name, servers_at)
    try:
        found = pull_documents(
            transport, [*servers_at], Key(ABOUT.name, 0), until=first(1), timeout_s=give_up_s
        )
    finally:
        transport.close()
    if not found.documents:
        told = ", ".join(f"{peer} ({why})" for peer, why in found.replies.silent.items())
        raise RunError(
            f"{name} reached no server in {give_up_s:g} s: {told}. Look at --server and at the "
            "certificates."
        )
    return About.read(next(iter(found.documents.values())))


def own_images(dataset: Dataset, about: About) -> DeviceData:
    """All training images of a data set, with the training's numbers for its classes.

    Where clusters take the place of classes there are no labels.
    """
    if dataset.image != about.image:
        raise InputError(
            f"The images here are {_size(dataset.image)}, and the training is one of "
            f"{_size(about.image)}. Scale them with --image-side."
        )
    pixels = dataset.pixels("train")
    pixels = pixels[..., np.newaxis] if pixels.ndim == 3 else pixels
    images = torch.tensor(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    if about.clusters is not None:
        return DeviceData.unlabelled(images)
    for kind in dataset.classes:
        if kind not in about.classes:
            raise UnknownName("a class of this training", kind, about.classes)
    to_theirs = np.array([about.classes.index(kind) for kind in dataset.classes])
    return DeviceData(images, torch.from_numpy(to_theirs[dataset.labels("train")]))


def _size(image: tuple[int, int, int]) -> str:
    return f"{image[2]}×{image[1]} with {image[0]} channel{'s' if image[0] > 1 else ''}"


def serve_apart(
    name: str,
    listen: str,
    database: StateDatabase,
    *,
    certificates: Path | None,
    ended: threading.Event,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Be one more server of a training that has begun: wait to lead, and lead if need be."""
    if database.latest() is None:
        tell(f"{name} waits for {database.run} to begin: its state is not in that database yet.")
    kept = _begun(database, ended)
    if kept is None:
        return
    settings = made(FedganSettings, dict(kept.document["settings"]))
    about = About.read(dict(kept.document["about"]))
    devices = tuple(sorted(devices_of(kept), key=device_number))
    wiring = Wiring((name,), devices, None if certificates is None else str(certificates))
    transport = wiring.transport(name, {}, listen=listen)
    try:
        node = ServerNode(
            name, gan_of(about), about, settings, transport, devices, database,
            server_limits(settings),
        )  # fmt: skip
        tell(f"{name} listens at {transport.address} and waits to lead {database.run}.")
        node.run(ended)
    finally:
        transport.close()


def _begun(database: StateDatabase, ended: threading.Event) -> LearningState | None:
    while not ended.is_set():
        kept = database.latest()
        if kept is not None:
            return kept
        ended.wait(_LOOK_S)
    return None
