"""The weights that a model starts from when no file gives them: drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Weights made inside are the same on every machine; torch's random state stays as it is."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def draw_convolutions(model: nn.Module) -> None:
    """Draw them by He et al. (ICCV 2015), so that signals keep their size."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
