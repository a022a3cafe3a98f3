"""The accounts of devices that share one process, and the networks they train on in turn.

Simulated accounts are no files: a resumed run finds in its metrics who was asked, and charges them
again. It does the lost rounds again as well, with the same noise, which tells nothing new. A real
device keeps its account itself, and draws other noise for a round that it is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from garfield.fedgan.averaging import State
from garfield.fedgan.device import DeviceData, Task, Update
from garfield.fedgan.differential_privacy.account import PrivacyAccount
from garfield.fedgan.differential_privacy.budget import check_budgets
from garfield.fedgan.differential_privacy.private_networks import PrivateNetworks, PrivateTrainer
from garfield.fedgan.gan import Gan
from garfield.fedgan.load import Load
from garfield.fedgan.settings import FedganSettings

_SECRETS = 15  # so that no two draw the same numbers


class PrivateDevices:
    """Private training of all devices of a simulation."""

    def __init__(
        self, gan: Gan, devices: Sequence[DeviceData], loads: Sequence[Load],
        settings: FedganSettings,
    ) -> None:  # fmt: skip
        """`loads` is what each device is asked for in a round."""
        self._samples = [len(data) for data in devices]
        self._loads, self._limits = loads, settings.privacy
        self._shared = PrivateNetworks(gan, settings.privacy)
        self.networks = self._shared.networks
        rngs = (
            np.random.default_rng((settings.training.seed, _SECRETS, k))
            for k in range(len(devices))
        )
        self.accounts = [
            PrivacyAccount(settings.privacy, secret=int(rng.integers(2**63))) for rng in rngs
        ]

    def spent(self) -> list[int]:
        """The devices that cannot pay for a round, or not for another."""
        return [
            device
            for device, account in enumerate(self.accounts)
            if not account.can_pay(self._loads[device], self._samples[device])
        ]

    def train(self, device: int, data: DeviceData, state: State, task: Task) -> Update:
        """Let one of them do a task."""
        return PrivateTrainer(self._shared, self.accounts[device]).train(data, state, task)

    def charge_again(self, asked: Iterable[int]) -> None:
        """Charge those who were asked in a round that a resumed run has behind it."""
        for device in asked:
            self.accounts[device].pay(self._loads[device], self._samples[device])


def private_devices(
    gan: Gan, devices: Sequence[DeviceData], loads: Sequence[Load], settings: FedganSettings
) -> PrivateDevices | None:
    """Private training as the settings ask for it, checked; None if they do not."""
    if settings.privacy.dp_epsilon is None:
        return None
    found = PrivateDevices(gan, devices, loads, settings)
    check_budgets(settings.privacy, loads, [len(data) for data in devices])
    return found
