"""Who is in a job, written where its workers and its controller can read it: one small contract.

A *generation* is a list of members, in the order of their ranks. Its life:

    proposed    by the controller, or by members who agreed; a compare-and-set on its number, so
                that of two proposals one fails
    arrived     newcomers are started and ready, and its first member has opened a store;
                meanwhile the generation before goes on training
    begun       all members have left what they did before and formed a group

Two halves of a job can never both go on. A step is a collective of all members of a generation,
so a generation goes on with all of them or not at all; a later one leaves some out only if it was
proposed; and a checkpoint is accepted of no generation older than the last that has begun.
Whoever finds itself left out, stops.

Losing the controller, or the place where all this is kept, means that nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Generation:
    """The members of a job, for a time."""

    number: int
    """1 for the first; 0 means that there is none yet."""
    members: tuple[str, ...]
    """Names, in the order of ranks. A name is one process's: who is started anew gets another."""

    def rank_of(self, member: str) -> int | None:
        """None for one who is no member."""
        return self.members.index(member) if member in self.members else None

    def newcomers(self, before: Generation | None) -> frozenset[str]:
        """Members who were not in the generation before."""
        return frozenset(self.members).difference(before.members if before else ())


@dataclass(frozen=True)
class BatchSize:
    """Samples of one worker's micro-batch, as of some moment.

    Whichever of two is later counts. Workers read it at different times, so they tell each other
    the latest that they know, and change together (thesis, 4.4.4).
    """

    size: int
    since_us: int
    """Microseconds since 1970."""
    most: int | None = None
    """The largest size that fits into memory, once that is known."""

    def __post_init__(self) -> None:
        if self.size < 1 or (self.most is not None and self.most < 1):
            raise ConfigError(f"A batch has at least 1 sample, got {self.size} of {self.most}.")

    @property
    def allowed(self) -> int:
        """The size to use."""
        return self.size if self.most is None else min(self.size, self.most)


@dataclass(frozen=True)
class CheckpointPointer:
    """The checkpoint to go on from if no worker is left."""

    generation: int
    """The one that wrote it."""
    step: int
    path: str


@dataclass(frozen=True)
class JobView:
    """All that is agreed on, as of one moment."""

    generation: Generation = Generation(0, ())
    """The newest proposed."""
    begun: int = 0
    """The number of the newest that has begun."""
    arrived: Mapping[str, str] = field(default_factory=dict)
    """Members of the newest who are ready for it, and the store that each offers, if any."""
    batch: BatchSize | None = None
    checkpoint: CheckpointPointer | None = None
    finished: bool = False
    """The training has come to its end: nobody need join it any more."""

    def is_ready(self, current: Generation | None) -> bool:
        """Whether members of `current` can change to the newest without waiting for anybody."""
        awaited = self.generation.newcomers(current)
        has_store = len(self.generation.members) == 1 or self.store is not None
        return awaited <= self.arrived.keys() and has_store

    @property
    def store(self) -> str | None:
        """Where the newest generation's first member has opened its store: host:port."""
        members = self.generation.members
        return (self.arrived.get(members[0]) or None) if members else None


class Coordination(Protocol):
    """Where a job's agreement is kept. `CoordinationUnreachable` may come of every method.

    Used by several threads of a worker at once.
    """

    host: str
    """The address at which other members reach a store that is opened here."""

    def read(self) -> JobView:
        """Look at all of it, as of one moment."""

    def propose(self, members: Sequence[str], *, after: int, reopen: bool = False) -> bool:
        """Make generation `after` + 1 of these; False if `after` is not the newest any more.

        Who had arrived stays so if it is in this one too, and its store is forgotten. False also
        if the training is finished, unless it is to be reopened. Of a generation
        without any member of the one before, the proposer vouches that those have ended: it goes
        on from the last checkpoint.
        """

    def arrive(self, number: int, member: str, store: str = "") -> None:
        """Be ready for a generation; its first member tells where it has opened a store."""

    def begin(self, number: int) -> bool:
        """Say that a generation's group has formed; False if a later one's has."""

    def set_batch(self, batch: BatchSize) -> bool:
        """Change the batch size; False if a later one is known. What is said of `most` is kept
        unless the new one says less."""

    def move_checkpoint(
        self, pointer: CheckpointPointer, *, after: CheckpointPointer | None
    ) -> bool:
        """Make it the one to go on from; False if `after` is not any more, or if a generation
        later than the pointer's has begun."""

    def report(self, member: str, measured: Mapping[str, Any]) -> None:
        """Tell what was measured; only the last report of each member is kept."""

    def reports(self) -> dict[str, dict[str, Any]]:
        """The last report of each member."""

    def finish(self) -> None:
        """Say that the training has come to its end."""

    def close(self) -> None:
        """Let go of it; what was agreed stays."""


def check_members(members: Sequence[str]) -> tuple[str, ...]:
    """Members as a generation holds them; ConfigError for none, two alike, or a nameless one."""
    if not members or len(set(members)) != len(members) or not all(members):
        raise ConfigError(f"A generation needs members with names of their own, got {members}.")
    return tuple(members)
