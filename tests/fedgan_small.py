"""Images and networks as small as they come, for tests of federated GANs."""

import torch

from garfield.fedgan.networks import gan_for

IMAGE = (1, 16, 16)
BATCH = 6


def images(count, seed=0, classes=3):
    rng = torch.Generator().manual_seed(seed)
    made = torch.rand(count, *IMAGE, generator=rng) * 2 - 1
    return made, torch.randint(classes, (count,), generator=rng)


def shares(devices, each=20):
    return [images(each, seed) for seed in range(devices)]


def lsgan(classes=None):
    return gan_for("lsgan(width=0.0625)", IMAGE, classes=classes)


def flat(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])
