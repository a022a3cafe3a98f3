"""How long a training step takes on n workers with a batch of b each: Pollux's model.

    T_grad = α_g + β_g·b                                  computing the gradient
    T_sync = 0                           n = 1            averaging it
             α_l + β_l·(n − 2)           on one node
             α_n + β_n·(n − 2)           on several
    T      = (T_grad^γ + T_sync^γ)^(1/γ)                  γ = 1: one after the other, γ → ∞: at once

Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI
2021, section 3.2. The coefficients are fitted by `tools/fit_profiles.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepTime:
    """The seven coefficients of one model on one kind of GPU and network, in seconds."""

    alpha_grad: float
    beta_grad: float
    alpha_local: float
    beta_local: float
    alpha_node: float
    beta_node: float
    gamma: float

    def compute_s(self, batch: float) -> float:
        """Seconds to compute a gradient."""
        return self.alpha_grad + self.beta_grad * batch

    def sync_s(self, workers: int, nodes: int) -> float:
        """Seconds to average gradients if nothing else went on."""
        if workers == 1:
            return 0.0
        if nodes == 1:
            return self.alpha_local + self.beta_local * (workers - 2)
        return self.alpha_node + self.beta_node * (workers - 2)

    def step_s(self, workers: int, nodes: int, batch: float) -> float:
        """Seconds of a whole step."""
        compute, sync = self.compute_s(batch), self.sync_s(workers, nodes)
        longer, shorter = max(compute, sync), min(compute, sync)
        ratio = shorter / longer  # taken out of the power, which would overflow
        return float(longer * (1 + ratio**self.gamma) ** (1 / self.gamma))
