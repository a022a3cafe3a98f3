"""What a simulated round of federated GANs costs beside the bare loop of the same iterations.

80 devices, 2 of them a round, E = 30 iterations of B = 50, on images of 28×28. The bare loop is the
best we can write: two networks, two optimizers, tensors at hand, images made once an iteration, no
gradient for the discriminator's weights in the generator's step. Both run in this process, in
turns, on the same threads. A round also draws batches from a device's share, loads and copies the
state, checks what devices send, samples and averages: the target is 1.1 times the bare loop.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console

from benchmarks.alone import alone
from benchmarks.timing import fastest
from garfield.core.config import made
from garfield.fedgan.device import DeviceData
from garfield.fedgan.gan import Gan
from garfield.fedgan.networks import gan_for
from garfield.fedgan.partition import divided
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import simulated
from garfield.report.plain_tables import plain_table

QUESTION = "How much longer does a simulated federated round take than its bare iterations?"
TARGET = 1.1
IMAGE, CLASSES, SAMPLES = (1, 28, 28), 10, 20_000


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gans", nargs="+", default=["lsgan(width=0.25)", "lsgan"], help="which")
    group.add_argument("--steps", type=int, default=30, help="iterations of a device: E")
    group.add_argument("--batch", type=int, default=50, help="samples of an iteration: B")
    group.add_argument("--threads", type=int, default=2, help="of torch")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A row per network."""
    import numpy as np

    torch.set_num_threads(options.threads)
    steps = 3 if options.quick else options.steps
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (SAMPLES, *IMAGE), dtype=torch.uint8, generator=rng)
    labels = torch.arange(SAMPLES) % CLASSES
    shares = divided(
        "skewed", labels.numpy(), devices=80, max_class=5, max_samples=3000,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    devices = [DeviceData(images, labels, share) for share in shares]
    settings = made(
        FedganSettings,
        {"local_steps": steps, "batch": options.batch, "missing_classes": "allow"},
    )
    table = plain_table("networks", "bare loop, s", "round, s", "ratio", right=3)
    found = []
    for name in options.gans:
        gan = gan_for(name, IMAGE)
        federation = simulated(gan, devices, classes=CLASSES, settings=settings)
        bare = BareLoop(gan, devices[-1].batch(np.arange(options.batch))[0])
        with alone():
            timed = fastest(
                {"round": federation.round}, lambda b=bare: b.run(2 * steps),
                budget_s=1.0, least=2 if options.quick else 4, most=6,
            )  # fmt: skip
        ratio = timed.best["round"] / timed.baseline
        table.add_row(name, f"{timed.baseline:.2f}", f"{timed.best['round']:.2f}", f"{ratio:.3f}")
        found.append(
            {"gan": name, "bare_s": timed.baseline, "round_s": timed.best["round"], "ratio": ratio,
             "others": timed.others}
        )  # fmt: skip
    console.print(table)
    worst = max(line["ratio"] for line in found)
    console.print(
        f"Largest ratio {worst:.3f}: target {TARGET} {'met' if worst <= TARGET else 'missed'}."
    )
    return {"steps": steps, "batch": options.batch, "threads": options.threads, "rows": found}


class BareLoop:
    """Iterations of one GAN and nothing else."""

    def __init__(self, gan: Gan, real: torch.Tensor) -> None:
        self.gan, self.real = replace(gan), real
        self.generator, self.discriminator = gan.build(0)
        self.steps = (
            gan.optimizer(self.generator.parameters()),
            gan.optimizer(self.discriminator.parameters()),
        )

    def run(self, iterations: int) -> None:
        """Train for so many iterations, on the same batch."""
        gan, generator, discriminator = self.gan, self.generator, self.discriminator
        weights = list(discriminator.parameters())
        for _ in range(iterations):
            fake = generator(gan.noise(len(self.real)))
            self.steps[1].zero_grad()
            gan.discriminator_loss(
                discriminator(self.real), discriminator(fake.detach())
            ).backward()
            self.steps[1].step()
            for weight in weights:
                weight.requires_grad_(False)
            self.steps[0].zero_grad()
            gan.generator_loss(discriminator(fake)).backward()
            self.steps[0].step()
            for weight in weights:
                weight.requires_grad_(True)
