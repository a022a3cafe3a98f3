"""A network and its optimizer as tensors by name, to go on from later.

Beside these, a training has its number of iterations and nothing else: what an iteration draws
depends on that number and the seed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from garfield.core.errors import InputError


def saved_training(
    prefix: str, network: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Copies of parameters, buffers, and what the optimizer remembers of each parameter."""
    state = {
        f"{prefix}.{name}": tensor.detach().clone() for name, tensor in network.state_dict().items()
    }
    for number, kept in optimizer.state_dict()["state"].items():
        for name, value in kept.items():
            if value is not None:
                state[f"{prefix}_optimizer.{number}.{name}"] = torch.as_tensor(value).clone()
    return state


def restore_training(
    prefix: str,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Tensor],
) -> None:
    """Go on from what `saved_training` gave; InputError if it is of another network."""
    own = network.state_dict()
    found = {name: state.get(f"{prefix}.{name}") for name in own}
    for name, tensor in found.items():
        if tensor is None or tensor.shape != own[name].shape:
            had = "nothing" if tensor is None else str(tuple(tensor.shape))
            raise InputError(
                f"The saved training has {had} for {prefix}.{name}, not {tuple(own[name].shape)}: "
                "it is one of other networks."
            )
    network.load_state_dict(found)
    remembered: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        owner, _, rest = key.partition(".")
        if owner == f"{prefix}_optimizer":
            number, _, name = rest.partition(".")
            remembered.setdefault(int(number), {})[name] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": remembered, "param_groups": groups})
