"""The noise scale of gradients, measured on the way: McCandlish et al., 2018, appendix A.1.

A worker's gradient g is that of b samples, the average ḡ over n workers that of B = n b. As the
mean of |g|² is |G|² + S / b, with G the true gradient and S the variance of a sample's (the trace
of its covariance), the two norms of one step estimate both without bias:

    |G|² ≈ (B |ḡ|² − b |g|²) / (B − b)        S ≈ (|g|² − |ḡ|²) / (1/b − 1/B)

Either scatters, so each is averaged over steps, and φ = S / |G|² is the ratio of the averages.
AdaScale needs it; it takes two workers, a pass over the gradients and an exchange of one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # torch hides it
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from garfield.elastic.job.group import WorkerGroup

_MEMORY_STEPS = 50
"""Over about so many steps the estimates are averaged: the scale changes as a model learns."""
_LARGEST = 1e9
"""Where noise hides the gradient: from here on AdaScale is linear."""


class NoiseScale:
    """The averages, a part of the state of a training."""

    def __init__(self) -> None:
        self._signal = self._noise = self._weight = 0.0

    def add(self, small: float, batch: float, large: float, step: float) -> None:
        """Take in a step: the mean |g|² of workers' gradients of `batch` samples, and |ḡ|²."""
        keep = 1 - 1 / _MEMORY_STEPS
        signal = (step * large - batch * small) / (step - batch)
        noise = (small - large) / (1 / batch - 1 / step)
        self._signal = keep * self._signal + (1 - keep) * signal
        self._noise = keep * self._noise + (1 - keep) * noise
        self._weight = keep * self._weight + (1 - keep)

    @property
    def samples(self) -> float | None:
        """φ, in samples; None before anything was measured."""
        if not self._weight:
            return None
        if self._signal * _LARGEST <= self._noise:
            return _LARGEST
        return max(0.0, self._noise / self._signal)

    def state_dict(self) -> dict[str, float]:
        return {"signal": self._signal, "noise": self._noise, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._signal, self._noise = state["signal"], state["noise"]
        self._weight = state["weight"]


class GradientNorms:
    """Both norms of a step, measured in one group of at least two workers."""

    def __init__(self, model: DistributedDataParallel, group: WorkerGroup) -> None:
        self._group = group
        self._local = torch.zeros(())
        # a lambda: torch compares a hook's annotations with its own types, and finds strings
        model.register_comm_hook(None, lambda _, bucket: self._exchange(bucket))

    def _exchange(self, bucket: GradBucket) -> Any:
        """Measure a part of this worker's gradient, and average it over the workers."""
        part = bucket.buffer()
        self._local = self._local.to(part.device) + torch.dot(part, part)
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]  # None is the default group

    def take(self, gradients: Iterable[Tensor | None]) -> tuple[float, float]:
        """The mean over workers of |g|², and |ḡ|², of the step whose gradients these are."""
        local, self._local = float(self._local), torch.zeros(())
        average = sum(float(torch.linalg.vector_norm(g)) ** 2 for g in gradients if g is not None)
        return self._group.mean(local), average
