"""Images of four kinds that anybody can tell apart, on devices that have no labels."""

import numpy as np
import torch

from garfield.core.config import made
from garfield.fedgan.device import DeviceData
from garfield.fedgan.settings import FedganSettings

KINDS = ("top", "left", "all", "none")


def picture(kind, rng):
    """16×16, with one half of it bright, or all, or none."""
    pixels = rng.integers(0, 60, (16, 16))
    where = {"top": np.s_[:8], "left": np.s_[:, :8], "all": np.s_[:], "none": np.s_[:0]}[kind]
    pixels[where] += 180
    return pixels.astype(np.uint8)


def device(seed, **counts):
    rng = np.random.default_rng(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    rng.shuffle(kinds)
    images = np.stack([picture(kind, rng) for kind in kinds])[:, None]
    truth = torch.tensor([KINDS.index(kind) for kind in kinds])
    return DeviceData.unlabelled(torch.from_numpy(images)), truth


def settings(**given):
    given = {"devices": 3, "fraction": 0.34, "local_steps": 1, "batch": 4, "clusters": 4} | given
    return made(FedganSettings, {"data": "folder:none"} | given)


POPULATION = [
    device(0, top=30, left=10, all=6), device(1, top=9, none=25), device(2, left=20, top=12, all=30)
]  # fmt: skip
