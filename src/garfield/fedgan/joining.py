"""What the devices of a round sent becomes the next learning state.

    Weighted   the weighted mean of all that is in the states (`averaging`, `weighting`)
    Robust     a rule of `garfield.gars` on what each device *changed*, unweighted

Robust rules see rows of differences of parameters. Buffers (batch norm's means, variances and
counts) take no part in distances: each number becomes the median of what devices sent. Weights are
not for liars to claim, so there are none; a state that cannot be used is a missing row. Optimizer
state cannot be kept: it would be one more thing to lie about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from garfield.core.errors import ConfigError, InputError
from garfield.core.types import Floats
from garfield.fedgan.averaging import State, WeightedMean
from garfield.gars import Aggregator, parse


class Joining(Protocol):
    """From the states of a round to the next one."""

    def join(
        self, before: State, sent: Sequence[State | None], weights: Sequence[float], seed: int
    ) -> State: ...


class Weighted:
    """The weighted mean of all states that were sent."""

    def join(
        self, before: State, sent: Sequence[State | None], weights: Sequence[float], seed: int
    ) -> State:
        """None stands for a device that sent nothing usable; its weight is ignored."""
        mean = WeightedMean()
        for state, weight in zip(sent, weights, strict=True):
            if state is not None:
                mean.add(state, weight)
        return mean.mean()


class Robust:
    """A rule on differences of parameters, the median of buffers."""

    def __init__(self, rule: str, n: int, f: int, parameters: frozenset[str]) -> None:
        """`n` devices a round, of whom `f` may lie; refuses what the rule cannot bear."""
        self.rule, self.n, self.f = parse(rule), n, f
        self.rule.check(n, f)
        if self.rule.remembers == "own row":
            raise ConfigError(
                f"{rule} trusts the row of the node that aggregates, and the server of federated "
                "GANs has none. Choose another rule, such as nnm+trimmed-mean."
            )
        self.layout = Layout(parameters)
        self.last: Floats | None = None
        """The last aggregate, for rules that step from it; part of a checkpoint."""

    def join(
        self, before: State, sent: Sequence[State | None], weights: Sequence[float], seed: int
    ) -> State:
        """The state before plus the rule's aggregate of what was changed."""
        rows = [None if state is None else self.layout.change(before, state) for state in sent]
        rows += [None] * (self.n - len(rows))
        aggregator = Aggregator(self.rule, self.n, self.f, np.random.default_rng(seed))
        remembered = self.last if self.rule.remembers == "last aggregate" else None
        found = np.asarray(aggregator.aggregate(rows, reference=remembered), dtype=np.float32)
        if self.rule.remembers == "last aggregate":
            self.last = found
        heard = [state for state in sent if state is not None]
        return self.layout.changed(before, found) | self.layout.medians(heard)


class Layout:
    """Parameters as one flat vector: what rules and attacks work on."""

    def __init__(self, parameters: frozenset[str]) -> None:
        self.parameters = parameters

    def change(self, before: State, after: Mapping[str, Tensor]) -> Floats:
        """(d,) float32: parameters after, minus parameters before."""
        parts = [(after[k] - before[k]).flatten() for k in before if k in self.parameters]
        return torch.cat(parts).float().numpy()

    def changed(self, before: State, change: Floats) -> State:
        """The parameters before, plus that change."""
        found, at = {}, 0
        flat = torch.from_numpy(np.ascontiguousarray(change))
        for name, tensor in before.items():
            if name in self.parameters:
                part = flat[at : at + tensor.numel()].view(tensor.shape)
                found[name] = tensor + part.to(tensor.dtype)
                at += tensor.numel()
        if at != len(change):
            raise InputError(f"A change of {len(change)} numbers is not one of {at} parameters.")
        return found

    def medians(self, states: Sequence[State]) -> State:
        """Everything but parameters: the median of what was sent, per coordinate."""
        if not states:
            raise InputError("No device sent anything that can be used.")
        found = {}
        for name, tensor in states[0].items():
            if name not in self.parameters:
                rows = torch.stack([state[name].double() for state in states])
                middle = torch.quantile(rows, 0.5, dim=0)
                whole = not tensor.is_floating_point()
                found[name] = (middle.round() if whole else middle).to(tensor.dtype)
        return found
