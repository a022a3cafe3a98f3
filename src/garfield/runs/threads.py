"""Frameworks in the processes of nodes: loaded ahead, and held to their threads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable

from garfield.core.frameworks import FRAMEWORKS, tensorflow

# TensorFlow may be forked after it was imported, but not after it has computed anything:
# its threads would be missing in the child. So it is imported ahead, and nothing more.
_PRELOADED = {"torch": "torch", "tensorflow": "garfield.adapters.tensorflow_adapter"}


def imported() -> tuple[str, ...]:
    """Those that this process has imported."""
    return tuple(name for name in FRAMEWORKS if name in sys.modules)


def preload_modules(frameworks: Iterable[str]) -> list[str]:
    """What a forkserver imports once for all nodes."""
    return [_PRELOADED[name] for name in FRAMEWORKS if name in frameworks]


def use_threads(count: int, frameworks: Collection[str]) -> None:
    """So that the nodes of one machine do not fight over its cores."""
    from garfield.kernels import set_threads

    set_threads(count)
    if "torch" in frameworks:
        import torch

        torch.set_num_threads(count)
    if "tensorflow" in frameworks:
        threading = tensorflow().config.threading
        with contextlib.suppress(RuntimeError):  # it has computed already, with its own threads
            threading.set_intra_op_parallelism_threads(count)
            threading.set_inter_op_parallelism_threads(1)
