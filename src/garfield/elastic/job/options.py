"""The settings of an elastic training; without torch, so that a controller can read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from garfield.core.bounds import Seed, Within
from garfield.core.config import check_numbers
from garfield.elastic.policy.learning_rate import LEARNING_RATES


@dataclass(frozen=True)
class ElasticOptions:
    """How a script trains while its workers come and go."""

    batch: Annotated[int, Within(1)] = 64
    """Samples per worker and step, until the controller says otherwise."""
    fixed_step: Annotated[int | None, Within(1)] = None
    """Samples of a step over all workers, if that number must stay: workers then accumulate
    gradients of at most `batch` samples. (workers times batch)"""
    learning_rate: str = "linear"
    """How the learning rate follows the samples of a step: linear, sqrt, none, or adascale, for
    which workers measure the noise of their gradients; it is sqrt until two of them have."""
    reference_step: Annotated[int | None, Within(1)] = None
    """Samples of a step that the learning rate was chosen for. (those of the first step)"""
    seed: Seed = 0
    """Fixes the order of the samples."""
    collective_timeout_s: Annotated[float, Within(0, above=True)] = 30.0
    """How long a worker waits for the others in the middle of a step before it takes the group for
    broken. A worker that ends is noticed at once; this is for one that hangs."""
    grace_s: Annotated[float, Within(0)] = 20.0
    """How long a worker that leaves stays for the others' sake, at most."""
    poll_s: Annotated[float, Within(0, above=True)] = 0.1
    """How often to look whether the job should change."""
    report_every: Annotated[int, Within(1)] = 10
    """Steps between two reports of what was measured."""
    checkpoint_dir: str | None = None
    """Where checkpoints go. (where the cluster says; else there are none)"""
    checkpoint_every: Annotated[int, Within(1)] = 1000
    """Steps between two checkpoints."""
    memory_mb: Annotated[float | None, Within(0, above=True)] = None
    """The memory that this worker may have on a CPU; beyond it the batch is halved."""

    def __post_init__(self) -> None:
        check_numbers(self)
        _ = LEARNING_RATES[self.learning_rate]  # refuses an unknown one, with the nearest
