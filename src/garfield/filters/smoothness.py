"""How long servers may go without seeing each other: T = max(1, ⌊1 / (3 l γ₁)⌋).

l is how fast gradients change. It is measured where training starts, along the first step, on
one batch: l = ‖∇(θ₀ − γ₁ g) − g‖ / ‖γ₁ g‖ with g = ∇(θ₀). The texts do not say how to get it;
one batch for both gradients keeps the noise of sampling out, which in the filter's own
coefficients outweighs the rest and would make T = 1 always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LONGEST = 1000  # steps: on a loss surface that is flat where it was measured


def smoothness(gradient: Callable[[Any], Any], start: Any, rate: float) -> float:
    """l, at the model `start`, for a first step of that learning rate."""
    before = np.array(gradient(start), dtype=np.float64)
    step = rate * before
    length = float(np.linalg.norm(step))
    if not length:
        return 0.0
    after = np.array(gradient((start - step).astype(np.float32)), dtype=np.float64)
    return float(np.linalg.norm(after - before)) / length


def period(l: float, rate: float) -> int:  # noqa: E741 (as in the formula)
    """T: steps from one gather to the next."""
    return LONGEST if 3 * l * rate * LONGEST <= 1 else max(1, int(1 / (3 * l * rate)))
