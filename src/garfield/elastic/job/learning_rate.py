"""An optimizer whose learning rate is another for a step: rules are in `elastic/policy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
