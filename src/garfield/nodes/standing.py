"""Where a server stands: which step its newest model is of, asked by workers that wait in vain.

A worker at step t has got model t − 1, so its servers were there. A server that was killed and
goes on from its checkpoint is further back, and takes its workers back with it. Steps never fall
otherwise, so it matters who can make a worker believe that:

    one server        it is trusted by definition: its word is enough
    several           so many that no quorum could have gone on without them: ⌊(n + f) / 2⌋ + 1,
                      more than f always. Any two sets of so many share an honest server, and who
                      has got model t − 1 from one set knows that the honest ones of it were there

An honest server may be slower than others. But whoever publishes model t − 1 has joined the
proposals of a quorum, whose honest ones had model t − 2 before. So those who stand at t − 2 or
later have not gone back, and of the others there are, liars included, never enough, unless
honest servers have started again. Where these stand is no further than somebody honest does: the
(f + 1)-th largest of the steps that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from garfield.transport.contract import Heard, Payload, VectorKind, declare_kind

STANDING = declare_kind(VectorKind("standing"))
SAID: Payload = np.zeros(1, np.float32)
"""What travels: the step is told beside it, as with every newest vector."""
SAID.setflags(write=False)


def least(n: int, f: int) -> int:
    """How many of n servers must have gone back for a worker to follow them."""
    return 1 if n == 1 else max(f + 1, (n + f) // 2 + 1)


def went_back_to(stands: Mapping[str, int], step: int, *, n: int, f: int) -> int | None:
    """The step to go back to, for a worker at `step`, by where its servers say to stand."""
    back = sorted((at for at in stands.values() if _is_back(at, step, n)), reverse=True)
    return back[min(f, n - 1)] if len(back) >= least(n, f) else None


def until_known(step: int, *, n: int, f: int) -> Callable[[Heard], float]:
    """Enough: so many answers that the rest cannot change what they come to."""

    def left_s(heard: Heard) -> float:
        back = sum(_is_back(at, step, n) for at in heard.steps.values())
        others = len(heard.steps) - back
        return 0.0 if back >= least(n, f) or n - others < least(n, f) else inf

    return left_s


def _is_back(at: int, step: int, n: int) -> bool:
    """Whether a server that stands there was further on once, as a worker at `step` knows."""
    return at < step - (1 if n == 1 else 2)
