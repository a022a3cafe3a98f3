"""Hundreds of devices in one process: the same rounds and the same training, one pair of networks.

    federation = simulated(gan, devices, classes=10, settings=FedganSettings())
    for _ in range(300):
        record = federation.round()
    images = federation.images(100, seed=1)

Devices train one after the other on networks that they share, each beginning from the server's
state and drawing from a seed of its own: same settings, same bits, on the same kind of machine.
What they would send and receive is counted, not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from garfield.attacks import ATTACKS
from garfield.attacks import parse as parse_attack
from garfield.core.errors import ConfigError
from garfield.fedgan.assembling import (
    FULL_COMPUTE,
    FULL_MEMORY_MB,
    federated_server,
    layout_of,
    refuse_missing_classes,
)
from garfield.fedgan.averaging import load_networks
from garfield.fedgan.device import DeviceData, Task, Trainer, Update
from garfield.fedgan.differential_privacy import PrivateDevices, private_devices
from garfield.fedgan.gan import Gan
from garfield.fedgan.lying import METADATA_ATTACKS, Liars
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable, noised
from garfield.fedgan.server import FederatedServer, RoundRecord
from garfield.fedgan.settings import FedganSettings

_LIARS, _WEAK, _NOISE, _LIES = 11, 12, 13, 14  # so that no two draw the same numbers


class Federation:
    """A server and its devices, all here."""

    def __init__(
        self, gan: Gan, devices: Sequence[DeviceData], server: FederatedServer,
        liars: Liars | None, private: PrivateDevices | None = None,
    ) -> None:  # fmt: skip
        self.gan, self.devices, self.server, self.liars = gan, devices, server, liars
        self.private = private
        self._trainer = Trainer(gan)
        if private is not None:
            server.history.leave(private.spent())

    def round(self) -> RoundRecord:
        """Hold one round."""
        server = self.server
        plan = server.plan()
        updates: Sequence[Update | None] = [
            self._trained(device, task)
            for device, task in zip(plan.devices, plan.tasks, strict=True)
        ]
        if self.liars is not None:
            rng = np.random.default_rng((server.rules.seed, plan.round, _LIES))
            updates = self.liars.told(server.state, plan.devices, updates, rng)
        return server.finish(plan, updates)

    def _trained(self, device: int, task: Task) -> Update:
        data, state = self.devices[device], self.server.state
        if self.private is None:
            return self._trainer.train(data, state, task)
        return self.private.train(device, data, state, task)

    def replay(self, event: Mapping[str, Any]) -> None:
        """Take note of a round that a resumed run has behind it, as its metrics tell it."""
        history = self.server.history
        history.record(event["asked"], event["took_part"], self.server.table.counts)
        if self.private is not None:
            self.private.charge_again(event["asked"])
            history.leave(event.get("spent", ()))

    @property
    def generator(self) -> torch.nn.Module:
        """The generator as the server has it now; written over by the next round."""
        load_networks(self._trainer.networks, self.server.state)
        return self._trainer.networks[0]

    def images(self, count: int, seed: int, labels: Tensor | None = None) -> Tensor:
        """(count, c, h, w) in [-1, 1], of the server's generator; every class in turn if labels
        are not given to a conditional one."""
        z = self.gan.noise(count, torch.Generator().manual_seed(seed))
        if labels is None and self.gan.conditional_on is not None:
            labels = torch.arange(count) % self.gan.conditional_on
        return self.gan.generate(self.generator, z, labels)


def simulated(
    gan: Gan,
    devices: Sequence[DeviceData],
    *,
    classes: int,
    settings: FedganSettings,
    class_names: Sequence[str] | None = None,
) -> Federation:
    """A federation of these devices; refuses what cannot work before anything is trained."""
    liars = _chosen(len(devices), settings.lies.lying, (settings.training.seed, _LIARS))
    table = declared(devices, classes, settings, liars)
    refuse_missing_classes(table, settings, class_names)
    server = federated_server(gan, table, settings)
    data, lying = _lying(gan, devices, classes, settings, liars)
    loads = [
        server.rules.load.of(memory, compute)
        for memory, compute in zip(table.memory_mb, table.compute, strict=True)
    ]
    return Federation(gan, data, server, lying, private_devices(gan, data, loads, settings))


def declared(
    devices: Sequence[DeviceData], classes: int, settings: FedganSettings, liars: frozenset[int]
) -> MetadataTable:
    """What all devices declare; some of it noised, some of it lies."""
    counts = [_told(device, data, classes, settings) for device, data in enumerate(devices)]
    if settings.lies.metadata_attack is not None:
        honest = np.array([each for k, each in enumerate(counts) if k not in liars])
        claim = METADATA_ATTACKS[settings.lies.metadata_attack](honest).tolist()
        counts = [tuple(claim) if k in liars else each for k, each in enumerate(counts)]
    weak = _weak(settings, len(devices))
    return MetadataTable.of(
        [_equipped(each, device in weak) for device, each in enumerate(counts)],
        [f"device-{device}" for device in range(len(devices))],
    )


def declared_by(
    device: int, data: DeviceData, classes: int, settings: FedganSettings
) -> DeviceMetadata:
    """What an honest device of that number declares; the same as among all others."""
    counts = _told(device, data, classes, settings)
    found = _equipped(counts, device in _weak(settings, settings.population.devices))
    found.check(f"device-{device}", classes)
    return found


def _told(device: int, data: DeviceData, classes: int, settings: FedganSettings) -> tuple[int, ...]:
    """Its samples per class, noised if so chosen; of none nothing is told, noise neither."""
    counts, epsilon = data.class_counts(classes), settings.population.noise_epsilon
    if epsilon is None or not any(counts):
        return counts
    return noised(counts, epsilon, np.random.default_rng((settings.training.seed, _NOISE, device)))


def _weak(settings: FedganSettings, devices: int) -> frozenset[int]:
    count = round(settings.population.weak_devices * devices)
    return _chosen(devices, count, (settings.training.seed, _WEAK))


def _equipped(counts: tuple[int, ...], weak: bool) -> DeviceMetadata:
    share = 2 if weak else 1
    return DeviceMetadata(counts, FULL_MEMORY_MB / share, FULL_COMPUTE / share)


def _lying(
    gan: Gan,
    devices: Sequence[DeviceData],
    classes: int,
    settings: FedganSettings,
    liars: frozenset[int],
) -> tuple[Sequence[DeviceData], Liars | None]:
    """The devices, some with other labels, and who lies about what was learned."""
    if settings.lies.attack is None or not liars:
        return devices, None
    attack = parse_attack(settings.lies.attack)
    if attack.knows_rule and settings.lies.gar is None:
        usable = ", ".join(name for name, other in ATTACKS.items() if not other.knows_rule)
        raise ConfigError(
            f"{attack.name} tries itself out on a rule: give --gar, or one of {usable}."
        )
    if attack.kind == "vector":
        return devices, Liars(attack, liars, layout_of(gan), settings.lies.gar, settings.lies.f)
    if gan.conditional_on is None:
        raise ConfigError(
            f"{attack.name} lies in the labels, and these networks are given none. "
            "Add --conditional, or choose another attack."
        )
    changed = [
        data.relabelled(torch.as_tensor(attack.labels(data.labels, classes)))
        if device in liars else data
        for device, data in enumerate(devices)
    ]  # fmt: skip
    return changed, None


def _chosen(devices: int, count: int, seed: tuple[int, ...]) -> frozenset[int]:
    rng = np.random.default_rng(seed)
    return frozenset(rng.choice(devices, count, replace=False).tolist())
