"""How the learning rate follows the global batch, B₀ being the one that was asked for.

    none       1
    linear     B / B₀                                       Goyal et al., 2017; thesis, 4.3.2
    sqrt       √(B / B₀)                                    Krizhevsky, 2014
    adascale   (φ + B₀) / (φ + B) · B / B₀                  Johnson et al., ICML 2020

φ is the noise scale: the variance of a sample's gradient over the squared norm of the mean one.
AdaScale's gain r = (σ² + μ²) / (σ²/S + μ²), with σ² the variance at B₀ and S = B / B₀, is the same
number, as σ²/μ² = φ / B₀. While nobody measured φ, adascale is linear's square root.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from garfield.core.errors import ConfigError
from garfield.core.registry import Registry

LearningRate: TypeAlias = Callable[[float, int, float | None], float]
"""(B / B₀, B₀, φ) to the factor of the learning rate."""

ADASCALE = "adascale"
"""The rule that asks for φ."""

LEARNING_RATES: Registry[LearningRate] = Registry("a rule for the learning rate")


def learning_rate(name: str) -> Callable[[LearningRate], LearningRate]:
    """Register a function as a rule for the learning rate."""
    return lambda rule: LEARNING_RATES.add(name, rule)


def factor(rule: str, batch: int, base: int, noise_scale: float | None = None) -> float:
    """What to multiply the learning rate with at a global batch of `batch`, asked for `base`."""
    if batch < 1 or base < 1:
        raise ConfigError(f"Global batches must be at least 1, got {batch} and {base}.")
    return LEARNING_RATES[rule](batch / base, base, noise_scale)


@learning_rate("none")
def unchanged(scale: float, base: int, noise_scale: float | None) -> float:
    return 1.0


@learning_rate("linear")
def linear(scale: float, base: int, noise_scale: float | None) -> float:
    return scale


@learning_rate("sqrt")
def sqrt(scale: float, base: int, noise_scale: float | None) -> float:
    return math.sqrt(scale)


@learning_rate(ADASCALE)
def adascale(scale: float, base: int, noise_scale: float | None) -> float:
    if noise_scale is None:
        return math.sqrt(scale)
    return (noise_scale + base) / (noise_scale + scale * base) * scale
