"""Knowledge: what omniscient liars have seen of the honest when they make up a lie.

now       the honest rows of the step, which the spy waits for as long as it may
last      those seen last, for a lie that cannot wait: about a step to come, or in a real
          asynchronous network, where whoever looks first comes when the quorum is full
likely    what honest servers might have said, where they all say the same
"""

from __future__ import annotations

import numpy as np

from garfield.core.types import Floats
from garfield.nodes.plan import Plan, Seen
from garfield.transport.contract import Key


def seen_last(plan: Plan, key: Key) -> Seen | None:
    """The honest rows of that kind that were seen last."""
    return plan.notes.seen.get(key.kind)


def seen_now(plan: Plan, key: Key, length: int) -> Seen | None:
    """The honest rows of this key, or the last ones there were, if there are too few."""
    found, last = plan.spy(key, length), seen_last(plan, key)
    if not found or (len(found) < 2 and last is not None):
        return last
    now = Seen(tuple(found), np.stack(list(found.values())))  # a copy: the rows are lent
    if plan.remembers or plan.timing.first:
        plan.notes.seen[key.kind] = now
    return now


def likely_rows(plan: Plan, key: Key, honest: Floats) -> Floats | None:
    """What honest servers might have said, each of whom listens to one worker alone.

    None where they differ as much anyway, as servers do that are not synchronous.
    """
    if plan.gradients is None or key.kind not in ("proposal", "model", "aggregate"):
        return None
    gradients = key.kind == "aggregate"  # of this step; models have moved along those of the last
    step = key.step if gradients else key.step - 1
    apart = _gradients_apart(plan, step, honest.shape[1])
    if apart is None:
        return None
    scale = 1.0 if gradients else -plan.rate(step)
    middle = honest.mean(axis=0)
    if np.abs(honest - middle).max() >= abs(scale) * np.abs(apart).max():
        return None
    likely: Floats = (middle + scale * apart).astype(honest.dtype)
    return likely


def _gradients_apart(plan: Plan, step: int, length: int) -> Floats | None:
    """(workers, d) how each honest gradient of a step differs from their mean."""
    notes = plan.notes
    if notes.gradients[0] != step:
        found = None
        if plan.gradients is not None and step >= 0:
            found = plan.gradients(Key("gradient", step), length)
        apart = None if not found or len(found) < 2 else np.stack(list(found.values()))
        notes.gradients = step, None if apart is None else apart - apart.mean(axis=0)
    return notes.gradients[1]
