"""Ranks of one training cut at the same layer: rank 0 measures and plans, and tells the others.

Each by itself would see its share of a link that all use at once, and might plan another split.
They talk over torch's default process group, which `garfield split train` forms under torchrun,
and other training loops for their gradients. Where there is none of as many ranks, each plans
alone.
"""

from __future__ import annotations

import torch
from torch import distributed

from garfield.core.errors import SplitError

_NONE = -1  # no split: planning has failed


def share_a_group(ranks: int) -> bool:
    """Whether this training's ranks can talk to each other."""
    if ranks == 1 or not (distributed.is_available() and distributed.is_initialized()):
        return False
    return distributed.get_world_size() == ranks


def is_first() -> bool:
    """Whether it is for us to plan."""
    return distributed.get_rank() == 0


def tell(split: int | None) -> None:
    """Tell the other ranks where to cut; None if it could not be planned."""
    _broadcast(_NONE if split is None else split)


def heard() -> int:
    """The split that rank 0 has planned; waits for it."""
    split = _broadcast(_NONE)
    if split == _NONE:
        raise SplitError("Rank 0 could not plan where to cut: it says why.")
    return split


def _broadcast(number: int) -> int:
    """Rank 0's number, on every rank."""
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    sent = torch.tensor(number, dtype=torch.int64, device=device)
    distributed.broadcast(sent, src=0)
    return int(sent)
