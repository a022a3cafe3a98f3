"""A linear classifier over frozen features, fitted to real images in closed form.

For data that no shipped network knows: one Gaussian per class with a covariance in common
(linear discriminant analysis, Fisher 1936), so that

    score_c(x) = μ_cᵀ S⁻¹ x − ½ μ_cᵀ S⁻¹ μ_c + log π_c,   S = (1 − s) Σ + s (tr Σ / d) I

and class probabilities are the softmax of the scores. s = 0.1 keeps S well conditioned when there
are about as many images as features. Nothing is drawn at random: same images, same classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

_SHRINKAGE = 0.1


@dataclass(frozen=True)
class ClassProbe:
    """Scores are features @ weight + bias."""

    weight: torch.Tensor
    """(d, classes) float64"""
    bias: torch.Tensor
    """(classes,) float64"""

    def probabilities(self, features: torch.Tensor) -> torch.Tensor:
        """(n, classes)"""
        return functional.softmax(features.double() @ self.weight + self.bias, 1)


def fitted_probe(features: torch.Tensor, labels: torch.Tensor, classes: int) -> ClassProbe | None:
    """The classifier of (n, d) features of known classes (n,).

    None unless there are two classes or more, and one of them has two images or more.
    """
    counts = torch.bincount(labels, minlength=classes).double()
    seen = counts > 0
    if int(seen.sum()) < 2 or len(labels) <= int(seen.sum()):
        return None
    rows = features.double()
    about = rows.mean(0)
    rows = rows - about
    d = rows.shape[1]
    means = torch.zeros(classes, d, dtype=torch.float64).index_add_(0, labels, rows)
    means /= counts.clamp_min(1).unsqueeze(1)
    rows -= means[labels]
    within = rows.T @ rows / (len(rows) - int(seen.sum()))
    scale = within.trace() / d
    shrunk = (1 - _SHRINKAGE) * within + _SHRINKAGE * scale * torch.eye(d, dtype=torch.float64)
    weight = torch.linalg.solve(shrunk, means.T)  # (d, classes)
    prior = torch.where(seen, (counts / len(rows)).log(), -1e30)  # what has no image is not picked
    bias = prior - 0.5 * (means.T * weight).sum(0) - about @ weight
    return ClassProbe(weight, bias)
