"""Memory: a limit for a worker on a CPU, and how it is told that a batch was too large."""

from __future__ import annotations

import resource

import torch

_OF_THE_CPU = "can't allocate memory"


def limit_memory(megabytes: float) -> None:
    """Let this process have so much memory of its own, whatever it has mapped from files."""
    most = int(megabytes * 2**20)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def is_out_of_memory(problem: BaseException | None) -> bool:
    """Whether that was the reason."""
    if isinstance(problem, (torch.OutOfMemoryError, MemoryError)):
        return True
    # torch's allocator of the CPU raises no type of its own: its text is all there is
    return isinstance(problem, RuntimeError) and _OF_THE_CPU in str(problem)
