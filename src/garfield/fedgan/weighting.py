"""How much each device's networks count when they are averaged.

    D_k = Σ_x P_k(x) log(P_k(x) / Q(x))      how far a device's classes are from everybody's (6.1)
    s_k = n_k / n · D_k                      (6.2)

    kl        w_k ∝ load_k · exp(−D_k)                                           the default
    thesis    w_k ∝ load_k · exp(−s_k) / Σ exp(−s_i)     (6.3), as printed
    uniform   w_k = 1 / m                                federated averaging without weights
    samples   w_k ∝ n_k                                  McMahan et al., AISTATS 2017 (FedAvg)

P_k and Q are the shares of classes on device k and on all devices; 0 log 0 = 0. Weights add up to
one over the devices of the round. As printed, the factor n_k/n of s_k is small where devices are
many, so all weights are nearly equal, and of two devices the more divergent one often weighs more,
because it has less: hence `kl`.

Source: Guirguis, EPFL 2023, 6.3.2 and 6.3.3. What the weights are worth is a question for
benchmarks; nothing here presumes that they help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError
from garfield.core.registry import Registry
from garfield.fedgan.partition import Counts

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RoundShares:
    """What weights are made of, for the m devices of one round."""

    divergence: Numbers
    """(m,) D_k"""
    samples: Numbers
    """(m,) n_k"""
    all_samples: float
    """n, over all devices"""
    load: Numbers
    """(m,) iterations × batch of each, relative to the full load"""


Weighting = Callable[[RoundShares], Numbers]
"""(m,) weights, not yet normalised."""

WEIGHTINGS: Registry[Weighting] = Registry("a weighting")


def kl_divergence(counts: Any, everybody: Any = None) -> Numbers:
    """(devices,) D_k of each row of counts; `everybody` is the sum of all rows unless given.

    Infinite for a device with a class that everybody together has not.
    """
    counts = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    everybody = counts.sum(axis=0) if everybody is None else np.asarray(everybody, np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    if (totals == 0).any() or everybody.sum() == 0:
        raise InputError("A device without samples has no distribution of classes.")
    P, Q = counts / totals, everybody / everybody.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(P > 0, P * np.log(P / Q), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=1), 0.0))  # rounding may leave it below


def scores(counts: Counts) -> Numbers:
    """(devices,) s_k of equation 6.2."""
    share = counts.sum(axis=1) / counts.sum()
    return np.asarray(share * kl_divergence(counts), dtype=np.float64)


def weights(name: str, shares: RoundShares) -> Numbers:
    """(m,) weights that add up to one."""
    found = WEIGHTINGS[name](shares)
    total = found.sum()
    if not np.isfinite(total) or total <= 0:
        raise InputError(f"{name}: the weights {found.tolist()} have no sum to be divided by.")
    return np.asarray(found / total, dtype=np.float64)


def _softmin(values: Numbers) -> Numbers:
    """exp(−v), scaled so that the largest is 1: what is far from all may not become 0 / 0."""
    return np.asarray(np.exp(values.min() - values), dtype=np.float64)


def kl(shares: RoundShares) -> Numbers:
    """load_k · exp(−D_k)."""
    return shares.load * _softmin(shares.divergence)


def thesis(shares: RoundShares) -> Numbers:
    """load_k · exp(−s_k), equation 6.3 as printed."""
    score = shares.samples / shares.all_samples * shares.divergence
    return shares.load * _softmin(score)


def uniform(shares: RoundShares) -> Numbers:
    """The same for all."""
    return np.ones_like(shares.divergence)


def samples(shares: RoundShares) -> Numbers:
    """n_k, as declared."""
    return shares.samples.astype(np.float64)


for _weighting in (kl, thesis, uniform, samples):
    WEIGHTINGS.add(_weighting.__name__, _weighting)
WEIGHTINGS.add("fedavg", samples)
