"""The fallback: workers that torchrun starts, and starts anew, all of them, on every change.

torchrun says who is there (RANK, WORLD_SIZE), so a generation is proposed by its first worker when
the group has formed. A change ends every process. Told to end (SIGTERM) they agree on a last step
and save it; one that loses a peer saves what it has; then all go on from the checkpoint. What the
agreement adds to plain torchrun is the fence: if two halves of a job each train alone, which
torchrun allows under load, the checkpoints of one of them are refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from garfield.core.errors import ConfigError, NodeFailed
from garfield.elastic.job.coordination import Coordination, Generation, JobView
from garfield.elastic.job.group import WorkerGroup


class TorchrunMembership:
    """Membership of a group that does not change as long as this process lives."""

    def __init__(self, coordination: Coordination, *, backend: str, timeout_s: float) -> None:
        self._coordination, self._backend, self._timeout_s = coordination, backend, timeout_s
        self._rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        # a port is of one round of torchrun's: so nobody has the name of one who was there before
        self._round = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        self.member = self._name(self._rank)

    def next_group(
        self, before: Generation | None, *, failed: int = 0, without: Collection[str] = ()
    ) -> WorkerGroup:
        """Form the only group; NodeFailed if there was one."""
        if before is not None:
            raise NodeFailed("The workers have changed. torchrun starts them anew.")
        members = tuple(self._name(rank) for rank in range(self._size))
        group = WorkerGroup(Generation(0, members), self._rank, self._backend)
        group.form_as_told(self._timeout_s)
        number = self._proposed(members) if self._rank == 0 else 0
        (number,), *_ = group.gather([number])
        group.generation = Generation(number, members)
        return group

    def read(self) -> JobView:
        return self._coordination.read()

    def _proposed(self, members: tuple[str, ...]) -> int:
        for _ in range(100):
            newest = self._coordination.read().generation.number
            if self._coordination.propose(members, after=newest, reopen=True):
                return newest + 1
        raise ConfigError("Other processes keep beginning the same training. End them first.")

    def _name(self, rank: int) -> str:
        return f"{self._round}/{rank}"
