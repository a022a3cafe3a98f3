"""The Lipschitz filter: at an honest model, the gradient has not changed more than ever before.

How fast a worker's gradient changes from one step to the next,

    k = ‖g_{t+1} − g_t‖ / ‖θ' − θ_t‖,    θ' = θ_t − γ_t g_t

where g_{t+1} is its gradient at the model that it pulled, must be at most the
(n_ps − f_ps)/n_ps quantile of the coefficients it has seen. Those of refused models count as
seen: a lying server is asked for a share of f_ps/n_ps of the models, and that share is cut off.
So of honest models, too, about the share f_ps/n_ps is refused, by construction.

The quantile is the smallest seen value that the share does not exceed: no interpolation, so
that an infinite coefficient does no harm. El Mhamdi, Guerraoui and Guirguis (2019) take all
coefficients ever seen; we keep the last fifty, and of each server no more than its part of them:
one that is asked more often than others, because these are late, must not own the quantile that
judges it. Gradients get shorter as training goes on, so k
rises, and against its whole past 38 to 46 % of honest models were refused (digits_mlp, 1 of 4
servers lying, 400 steps), against the last fifty 29 %; all of the liar's were, either way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from math import ceil, inf
from typing import Any

import numpy as np

REMEMBERED = 50


def coefficient(gradient: Any, before: Any, moved: float) -> float:
    """k, from two gradients and the length of the step between them."""
    with np.errstate(over="ignore", invalid="ignore"):  # at a lie, the gradient may be huge
        changed = float(np.linalg.norm(gradient - before))
    if changed != changed:
        return inf
    if moved > 0:
        return changed / moved
    return inf if changed else 0.0


class Coefficients:
    """What a worker has seen of late, and the judgement on the next one."""

    def __init__(self, *, n_ps: int, f_ps: int, remembered: int = REMEMBERED) -> None:
        self._share = (n_ps - f_ps, n_ps)
        self._most = ceil(remembered / n_ps)
        self._of: dict[str, deque[float]] = defaultdict(deque)
        self._sorted: list[float] = []

    @property
    def limit(self) -> float:
        """The quantile; infinite before anything was seen."""
        if not self._sorted:
            return inf
        of, among = self._share
        return self._sorted[ceil(len(self._sorted) * of / among) - 1]

    def accept(self, k: float, server: str = "") -> bool:
        """Whether k is within the limit; it is remembered either way, as that server's.

        Without a server, it is that of a model which all of them have made.
        """
        within, its = k <= self.limit, self._of[server]
        its.append(k)
        insort(self._sorted, k)
        if len(its) > self._most:
            del self._sorted[bisect_left(self._sorted, its.popleft())]
        return within
