"""The generators of random numbers that a script draws from: torch's, numpy's and Python's own.

They are each worker's own, so that workers do not drop the same units, and no newcomer is given
them. A checkpoint holds those of the worker that wrote it, and the first member goes on with them:
a training by one worker that is ended and resumed is the one that was never ended.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def captured() -> dict[str, Any]:
    """Where all generators are, in types that `torch.load` takes without code."""
    _, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, pending = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (torch.from_numpy(np.asarray(keys, np.int64)), place, has_gauss, gauss),
        "python": (version, words, pending),
    }


def restore(state: Mapping[str, Any]) -> None:
    """Go on from there; a machine with fewer GPUs leaves theirs as they are."""
    torch.set_rng_state(state["torch"])
    for device, each in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(each, device)
    keys, place, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), place, has_gauss, gauss))
    random.setstate(state["python"])


def generator_at(*place: int) -> torch.Generator:
    """A generator that depends on a place in the data alone, for what loads from there."""
    (word,) = np.random.SeedSequence(place).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(word >> np.uint64(1)))
