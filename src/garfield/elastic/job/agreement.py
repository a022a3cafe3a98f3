"""How workers decide, between two steps and all alike, that something changes.

Each says the newest generation that it has seen ready, the time of the newest batch size that it
knows, and whether it was told to leave; the largest of each counts. It is one small collective,
sent off before the forward pass and read after the optimizer's step, so nobody waits for it: the
gradients' own exchange has had them all in step meanwhile.

Where steps are short it is not held in each of them: workers also say after how many steps the next
one should be, as each has found a step to take, and the fewest count. So they always agree on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from garfield.elastic.job.coordination import BatchSize
from garfield.elastic.job.group import Pending, WorkerGroup


@dataclass(frozen=True)
class Decision:
    """What all members of a group have agreed on."""

    generation: int
    """The newest that somebody saw ready."""
    batch_since_us: int
    """Of the newest batch size that somebody knows."""
    leaving: frozenset[int]
    """Ranks that were told to leave."""
    next_vote: int
    """Steps until the next vote."""


class Vote:
    """One worker's say, on its way to the others."""

    def __init__(
        self, group: WorkerGroup, generation: int, batch: BatchSize, leaving: bool, next_vote: int
    ) -> None:
        leave = [0] * group.size
        leave[group.rank] = int(leaving)
        numbers = [generation, batch.since_us, -next_vote, *leave]
        self._pending: Pending = group.start_max(numbers)

    def wait(self) -> Decision:
        """Hear what was decided; GroupBroken if somebody is gone."""
        generation, since_us, fewest, *leave = self._pending.wait()
        leaving = frozenset(rank for rank, says in enumerate(leave) if says)
        return Decision(generation, since_us, leaving, -fewest)


class VoteRhythm:
    """In which steps votes are held: about as often as somebody could have news."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._steps_left = self._steps = 0
        self._step_s, self._since_s = math.inf, 0.0

    def restart(self, now_s: float) -> None:
        """Begin with a group: a vote in its first step."""
        self._steps_left = self._steps = 0
        self._step_s, self._since_s = math.inf, now_s

    @property
    def is_due(self) -> bool:
        """Whether the next step has one."""
        return self._steps_left == 0

    @property
    def wished(self) -> int:
        """Steps from one vote to the next, as long as steps have taken here."""
        return max(1, int(self._every_s / self._step_s))

    def stepped(self, agreed: int | None, now_s: float) -> None:
        """Count a step; if it had a vote, that agreed on the steps until the next."""
        self._steps += 1
        if agreed is None:
            self._steps_left -= 1
            return
        self._step_s = max(now_s - self._since_s, 1e-6) / self._steps
        self._steps_left, self._steps, self._since_s = agreed - 1, 0, now_s


def latest_batch(group: WorkerGroup, mine: BatchSize) -> BatchSize:
    """The newest batch size that any member knows (thesis, 4.4.4), and the lowest limit."""
    said = group.gather([mine.since_us, mine.size, mine.most or 0])
    return _latest([BatchSize(size, since, most or None) for since, size, most in said])


def _latest(known: Sequence[BatchSize]) -> BatchSize:
    newest = max(known, key=lambda batch: (batch.since_us, -batch.size))
    limits = [batch.most for batch in known if batch.most is not None]
    return BatchSize(newest.size, newest.since_us, min(limits, default=None))
