"""How a learning rate follows the number of samples in a step.

A scaling is a function of the ratio of the samples of a step to those that the learning rate was
chosen for. Linear is ERA's (thesis, 4.3.2; Goyal et al., 2017), and keeps the progress of an epoch;
the square root keeps the noise of an update as it was (Krizhevsky, 2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from garfield.core.registry import Registry

Scaling: TypeAlias = Callable[[float], float]

SCALINGS: Registry[Scaling] = Registry("a scaling of the learning rate")
SCALINGS.add("linear", lambda ratio: ratio)
SCALINGS.add("sqrt", math.sqrt)
SCALINGS.add("none", lambda ratio: 1.0)


@contextmanager
def scaled(optimizer: Any, factor: float) -> Iterator[None]:
    """Multiply an optimizer's learning rates, for one step.

    Between steps they stay what the script, or a scheduler of its, has set.
    """
    if factor == 1.0:
        yield
        return
    before = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate
