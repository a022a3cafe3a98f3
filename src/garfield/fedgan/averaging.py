"""Many learning states to one: parameters, batch-norm buffers and, if kept, optimizer state.

A learning state is a flat dict of tensors, `generator.…` and `discriminator.…`, with every
parameter *and every buffer* of both networks; with `--optimizer-state average` also
`generator_optimizer.…` and `discriminator_optimizer.…`. All floats are averaged by weight;
whole numbers (batches counted by batch norm) by weight too, and rounded; truth values by weighted
majority.

`WeightedMean` takes one state after the other, so that a round needs memory for one sum, however
many devices took part. The sum is in float64: what devices agree on comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from garfield.core.errors import InputError

State: TypeAlias = dict[str, Tensor]
"""Tensors by name."""

NETWORKS = ("generator", "discriminator")


def network_state(networks: tuple[nn.Module, nn.Module], *, copy: bool = True) -> State:
    """Parameters and buffers of generator and discriminator; copies, unless told otherwise."""
    return {
        f"{prefix}.{name}": tensor.detach().clone() if copy else tensor.detach()
        for prefix, network in zip(NETWORKS, networks, strict=True)
        for name, tensor in network.state_dict(keep_vars=True).items()
    }


def load_networks(networks: tuple[nn.Module, nn.Module], state: Mapping[str, Tensor]) -> None:
    """Copy parameters and buffers into both networks."""
    with torch.no_grad():
        for name, tensor in network_state(networks, copy=False).items():
            tensor.copy_(state[name])


def optimizer_state(optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer]) -> State:
    """Tensors and numbers that both optimizers keep for their parameters, by parameter and name."""
    return {
        f"{prefix}_optimizer.{number}.{name}": torch.as_tensor(value).detach().clone()
        for prefix, optimizer in zip(NETWORKS, optimizers, strict=True)
        for number, kept in optimizer.state_dict()["state"].items()
        for name, value in kept.items()
        if value is not None
    }


def load_optimizers(
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer], state: Mapping[str, Tensor]
) -> None:
    """Give both optimizers what `optimizer_state` took from others; nothing there: begin anew."""
    for prefix, optimizer in zip(NETWORKS, optimizers, strict=True):
        kept: dict[int, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            owner, _, rest = key.partition(".")
            if owner == f"{prefix}_optimizer":
                number, _, name = rest.partition(".")
                kept.setdefault(int(number), {})[name] = tensor.clone()
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": kept, "param_groups": groups})


def fresh_optimizer_state(
    networks: tuple[nn.Module, nn.Module],
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
) -> State:
    """What both optimizers keep before their first step, all zeros; their networks are spoilt."""
    for network, optimizer in zip(networks, optimizers, strict=True):
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    return {name: torch.zeros_like(kept) for name, kept in optimizer_state(optimizers).items()}


def check_alike(state: Mapping[str, Tensor], like: Mapping[str, Tensor], name: str) -> None:
    """Raise InputError, with the device's name, unless names, shapes, dtypes fit and all is finite.

    Optimizer state may be there or not, as in `like`.
    """
    if state.keys() != like.keys():
        odd = sorted(state.keys() ^ like.keys())[0]
        raise InputError(f"{name} sent another state than it was given: {odd} is not in both.")
    for key, tensor in state.items():
        wanted = like[key]
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
            raise InputError(
                f"{name} sent {key} as {tensor.dtype} {tuple(tensor.shape)}, not "
                f"{wanted.dtype} {tuple(wanted.shape)}."
            )
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name} sent {key} with NaN or infinite numbers: it has diverged.")


class WeightedMean:
    """The sum of weighted states so far."""

    def __init__(self) -> None:
        self._sum: State = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._weight = 0.0
        self.count = 0

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        """Add one; weights need not add up to one."""
        if not self.count:
            self._dtypes = {name: tensor.dtype for name, tensor in state.items()}
            self._sum = {name: tensor.double() * weight for name, tensor in state.items()}
        else:
            for name, total in self._sum.items():
                total.add_(state[name], alpha=weight)
        self._weight += weight
        self.count += 1

    def mean(self) -> State:
        """The weighted mean, every tensor in its own dtype."""
        if not self.count or self._weight <= 0:
            raise InputError("There is no state to take a mean of.")
        return {
            name: _as(total / self._weight, self._dtypes[name]) for name, total in self._sum.items()
        }


def _as(mean: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return mean.to(dtype)
    return mean > 0.5 if dtype is torch.bool else mean.round().to(dtype)
