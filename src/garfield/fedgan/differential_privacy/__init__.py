"""A discriminator that no single image shows in: DP-SGD, with an account on every device.

    limits = PrivacySettings(dp_epsilon=8.0, dp_noise=1.0)
    account = PrivacyAccount(limits, path=Path("privacy-account.json"))   # on the device
    trainer = PrivateTrainer(PrivateNetworks(gan, limits), account)
    update = trainer.train(data, state, task)       # BudgetSpent if the account cannot pay for it

Only the discriminator sees real images, so only it is trained privately (`private_networks`); the
generator learns through it, which costs nothing more (post-processing; Xie et al., DPGAN, 2018).
`account` sums up what all rounds have cost a device, and `simulated_devices` holds the accounts
of devices that share a process.

**What is promised.** Whoever sees all that a device ever sends *of its networks* learns at most
(ε, δ) about any one of its images being there or not. Not covered: the counts that it declares
(noise these with `--noise-epsilon`, whose ε comes on top), and an image that several devices hold
(their ε add up). Noise is drawn by torch's Mersenne Twister and added in floating point, which is
what Opacus does too unless it is given a cryptographic generator: Mironov, CCS 2012, shows how
the lowest bits of such noise can tell more.
"""

from garfield.fedgan.differential_privacy.account import PrivacyAccount
from garfield.fedgan.differential_privacy.budget import check_budget, check_budgets
from garfield.fedgan.differential_privacy.private_networks import PrivateNetworks, PrivateTrainer
from garfield.fedgan.differential_privacy.simulated_devices import PrivateDevices, private_devices

__all__ = [
    "PrivacyAccount",
    "PrivateDevices",
    "PrivateNetworks",
    "PrivateTrainer",
    "check_budget",
    "check_budgets",
    "private_devices",
]
