"""Which classes generated images belong to, compared with real ones: mode collapse as numbers.

A classifier names each image's class. What is "real" is what the same classifier says of real
images, not their labels, so that its habit of confusing shirts with coats cancels.

**KL** is KL(P ‖ Q) = Σ P(x) log(P(x) / Q(x)) with P the shares of classes among generated images
and Q among real ones, in nats, with 0·log 0 = 0: 0 when all classes come as often as in the data,
log 10 = 2.30 when only one of ten equally frequent classes comes. Direction and use as in Metz et
al. (Unrolled GANs, ICLR 2017) and Lin et al. (PacGAN, NeurIPS 2018).

**Modes covered**: those two papers, with a thousand classes, count one that a single image of
26,000 falls into. With ten classes and 10,000 images that says nothing, as a classifier's slips
alone reach every class. Here a class is covered if it holds, among generated images, at least a
tenth of the share it has among real ones, counting only images that the classifier is sure of
(probability at least 0.9), on both sides. Both numbers are ours.
"""

from __future__ import annotations

import torch

from garfield.core.errors import InputError

LEAST_SHARE = 0.1
"""Of a class's share among real images, what makes it covered."""

SURE = 0.9
"""The probability from which a classifier is sure."""


class ClassCounts:
    """How many images fell into each class, and how many of them surely."""

    def __init__(self, classes: int) -> None:
        self.n = 0
        self.all = torch.zeros(classes, dtype=torch.float64)
        self.sure = torch.zeros(classes, dtype=torch.float64)

    def add(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Count (rows, classes); returns the class of each row."""
        top, picked = probabilities.max(1)
        self.n += len(picked)
        self.all += torch.bincount(picked, minlength=len(self.all))
        self.sure += torch.bincount(picked[top >= SURE], minlength=len(self.sure))
        return picked

    @classmethod
    def of(cls, n: int, every: torch.Tensor, sure: torch.Tensor) -> ClassCounts:
        """Counts that were made before."""
        made = cls(len(every))
        made.n, made.all, made.sure = n, every.double(), sure.double()
        return made


def class_divergence(generated: torch.Tensor, real: torch.Tensor) -> float:
    """KL(P ‖ Q) of two vectors of counts, in nats; infinite where P has what Q has not."""
    p, q = generated.double(), real.double()
    if p.sum() <= 0 or q.sum() <= 0:
        raise InputError("Shares of classes need at least one image on either side, got none.")
    p, q = p / p.sum(), q / q.sum()
    return max(0.0, float((torch.xlogy(p, p) - torch.xlogy(p, q)).sum()))


def modes_covered(
    generated: ClassCounts, real: ClassCounts, least_share: float = LEAST_SHARE
) -> int:
    """How many classes of the real images the generated ones cover, as defined above."""
    had, wanted = generated.sure * real.n, least_share * real.sure * generated.n  # no division
    return int(((real.sure > 0) & (generated.sure > 0) & (had >= wanted * (1 - 1e-12))).sum())
