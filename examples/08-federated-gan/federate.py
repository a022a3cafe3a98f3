"""A GAN of your own, trained on data that is divided among devices.

The two networks, their losses and optimizers are plain PyTorch and know nothing of devices. A
`Gan` holds them, `DeviceData` the images of each device, and `simulated` trains them as a server
and its devices would: here twelve devices with at most three kinds of clothes each.

Run it with: python examples/08-federated-gan/federate.py [ROUNDS] [GRID.png]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from garfield.core.config import made
from garfield.data import fashion_small
from garfield.fedgan.device import DeviceData
from garfield.fedgan.gan import Gan
from garfield.fedgan.partition import skewed
from garfield.fedgan.pictures import write_grid
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import simulated


def generator():
    return nn.Sequential(
        nn.Linear(64, 32 * 7 * 7), nn.Unflatten(1, (32, 7, 7)), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip


def discriminator():
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 1),
    )  # fmt: skip


mine = Gan(
    generator,
    discriminator,
    latent=64,
    generator_loss=lambda fake: bce(fake, torch.ones_like(fake)),
    discriminator_loss=lambda real, fake: (
        bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))
    ),
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3, betas=(0.5, 0.999)),
)

data = fashion_small()
images, labels = torch.tensor(data.x_train).unsqueeze(1), torch.tensor(data.labels("train"))
shares = skewed(labels, devices=12, max_class=3, max_samples=150, rng=np.random.default_rng(2))
devices = [DeviceData(images, labels, share) for share in shares]
settings = made(FedganSettings, {"fraction": 0.25, "local_steps": 10, "missing_classes": "allow"})
federation = simulated(mine, devices, classes=10, settings=settings)

for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
    record = federation.round()
    print(f"round {record.round}: devices {record.took_part}, loss {record.generator_loss:.3f}")
drawn = federation.images(100, seed=0)
write_grid(drawn, Path(sys.argv[2] if len(sys.argv) > 2 else "federated.png"))
real = images.float().mean() / 127.5 - 1
print(f"mean of pixels: {drawn.mean():.3f}, of real ones {real:.3f}")
