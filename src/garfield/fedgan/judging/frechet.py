"""The Fréchet distance between two sets of features, each seen as a Gaussian.

    d² = |μ₁ − μ₂|² + tr Σ₁ + tr Σ₂ − 2 Σᵢ √λᵢ,   λ the eigenvalues of Σ₁Σ₂

Dowson and Landau, J. Multivariate Analysis 1982; over features of images it is FID, Heusel et
al., NeurIPS 2017. With Σ₁ = A Aᵀ the product has the eigenvalues of Aᵀ Σ₂ A, which is symmetric:
they are real and not negative, also where features are constant and Σ₁ has no full rank, and no
root of a matrix is needed. All in float64. Costs O(n d² + d³).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from garfield.core.errors import InputError


@dataclass(frozen=True)
class FeatureStatistics:
    """What is kept of a set of features."""

    n: int
    """How many rows there were."""
    mean: torch.Tensor
    """(d,) float64"""
    covariance: torch.Tensor
    """(d, d) float64, divided by n - 1"""


class FeatureSums:
    """Statistics of features that come batch by batch, so that none need be kept."""

    def __init__(self) -> None:
        self.n = 0
        self._about = torch.zeros(0)
        self._sum = torch.zeros(0)
        self._products = torch.zeros(0, 0)

    def add(self, features: torch.Tensor) -> None:
        """(rows, d)"""
        rows = features.double()
        if not self.n:  # sums about a value near the mean: Σx² − n·mean² cancels
            self._about = rows.mean(0)
            self._sum = torch.zeros_like(self._about)
            self._products = torch.zeros(len(self._about), len(self._about), dtype=torch.float64)
        rows = rows - self._about
        self.n += len(rows)
        self._sum += rows.sum(0)
        self._products += rows.T @ rows

    def statistics(self) -> FeatureStatistics:
        """Mean and covariance of what was added: two rows at least."""
        if self.n < 2:
            raise InputError(f"A covariance needs at least 2 images, got {self.n}.")
        off = self._sum / self.n
        covariance = (self._products - self.n * torch.outer(off, off)) / (self.n - 1)
        return FeatureStatistics(self.n, self._about + off, covariance)


def frechet_distance(one: FeatureStatistics, other: FeatureStatistics) -> float:
    """d², never below zero; InputError where features are not finite or not of one length."""
    if one.mean.shape != other.mean.shape:
        raise InputError(
            f"Features of length {len(one.mean)} cannot be compared with "
            f"features of length {len(other.mean)}."
        )
    for side in (one, other):
        if not (side.mean.isfinite().all() and side.covariance.isfinite().all()):
            raise InputError("Features are not finite: their distance is not a number.")
    values, vectors = torch.linalg.eigh(one.covariance)
    root = vectors * values.clamp_min(0).sqrt()  # A, with A Aᵀ = Σ₁
    crossed = torch.linalg.eigvalsh(root.T @ other.covariance @ root)
    apart = (one.mean - other.mean).square().sum()
    traces = one.covariance.trace() + other.covariance.trace()
    return max(0.0, float(apart + traces - 2 * crossed.clamp_min(0).sqrt().sum()))
