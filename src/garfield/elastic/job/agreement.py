"""How workers decide, between two steps and all alike, that something changes.

Each says the newest generation that it has seen ready, the time of the newest batch size that it
knows, and whether it was told to leave; the largest of each counts. It is one small collective a
step, sent off before the forward pass and read after the optimizer's step, so nobody waits for it:
the gradients' own exchange has had them all in step meanwhile.
"""

from __future__ import annotations

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


class Vote:
    """One worker's say, on its way to the others."""

    def __init__(
        self, group: WorkerGroup, generation: int, batch: BatchSize, leaving: bool
    ) -> None:
        leave = [0] * group.size
        leave[group.rank] = int(leaving)
        self._pending: Pending = group.start_max([generation, batch.since_us, *leave])

    def wait(self) -> Decision:
        """Hear what was decided; GroupBroken if somebody is gone."""
        generation, since_us, *leave = self._pending.wait()
        return Decision(
            generation, since_us, frozenset(rank for rank, says in enumerate(leave) if says)
        )


def latest_batch(group: WorkerGroup, mine: BatchSize) -> BatchSize:
    """The newest batch size that any member knows (thesis, 4.4.4), and the lowest limit."""
    said = group.gather([mine.since_us, mine.size, mine.most or 0])
    return _latest([BatchSize(size, since, most or None) for since, size, most in said])


def _latest(known: Sequence[BatchSize]) -> BatchSize:
    newest = max(known, key=lambda batch: (batch.since_us, -batch.size))
    limits = [batch.most for batch in known if batch.most is not None]
    return BatchSize(newest.size, newest.since_us, min(limits, default=None))
