"""From one group of workers to the next: how a worker gets to where the others are.

It looks for the newest generation, and meets its members at its store. Nobody waits blindly: who
has come says so in the store, and as long as somebody is missing all keep looking whether the
generation has been replaced by another one. Only when all are there do they form the group.

After a failure any member proposes the same members again: perhaps all still live. If one does
not, the others wait here, with their state, until a controller proposes a generation without it.
What members propose by themselves never leaves out one of theirs who has not agreed to leave.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.job.coordination import (
    Coordination,
    Generation,
    JobView,
)
from garfield.elastic.job.group import GroupBroken, MeetingPlace, WorkerGroup, connect
from garfield.elastic.job.watcher import Watcher

_log = logging.getLogger("garfield.elastic.job")
_LOOK_S = 0.005
_TOLD_AFTER_S = 5.0  # of waiting


class Membership:
    """One worker's way through the generations of its job."""

    def __init__(
        self,
        coordination: Coordination,
        member: str,
        watcher: Watcher,
        *,
        backend: str,
        timeout_s: float,
        is_told_to_leave: Callable[[], bool],
    ) -> None:
        self._coordination, self.member, self._watcher = coordination, member, watcher
        self._backend, self._timeout_s = backend, timeout_s
        self._is_told_to_leave = is_told_to_leave

    def next_group(
        self, before: Generation | None, *, failed: int = 0, without: Collection[str] = ()
    ) -> WorkerGroup | None:
        """Form the newest generation's group; None if this worker is in it no more.

        `before` is what it was in; generations up to `failed` are given up; `without` are those who
        leave by agreement of all.
        """
        while not self._is_told_to_leave():
            view = self.read()
            newest = view.generation
            rank = newest.rank_of(self.member)
            if view.finished or (rank is None and before is not None):
                return None
            # others who have gone on meanwhile are no newcomers, though they look like it from here
            is_current = before is not None and view.begun <= max(before.number, failed)
            staying = _staying(view, before, without)
            if is_current and staying != list(newest.members):
                self._propose(staying, newest)
            elif rank is None:
                time.sleep(_LOOK_S)  # a newcomer, whose generation is yet to be proposed
            elif newest.number <= failed:
                self._propose(newest.members, newest)
            else:
                try:
                    newcomers = newest.newcomers(before)
                    given_up = newcomers if is_current else frozenset[str]()
                    group = self._form(newest, rank, self.member in newcomers, given_up)
                except CoordinationUnreachable:
                    time.sleep(_LOOK_S)
                except GroupBroken as problem:
                    _log.warning("Generation %d did not form: %s", newest.number, problem)
                    failed = newest.number
                else:
                    if group is not None:
                        return group
        return None

    def read(self) -> JobView:
        """Look at the agreement, however long that takes; what is known when told to leave."""
        told = False
        while True:
            try:
                return self._coordination.read()
            except CoordinationUnreachable as problem:
                if self._is_told_to_leave():
                    return self._watcher.view
                if not told:
                    _log.warning("%s Waiting for it.", problem)
                told = True
                time.sleep(_LOOK_S)

    def _propose(self, members: Collection[str], newest: Generation) -> None:
        try:
            self._coordination.propose(tuple(members), after=newest.number)
        except CoordinationUnreachable:
            time.sleep(_LOOK_S)

    def _form(
        self, generation: Generation, rank: int, is_new: bool, given_up: Collection[str]
    ) -> WorkerGroup | None:
        """None if the generation is replaced before all have come.

        Those of `given_up` who do not come in time are not waited for any longer.
        """
        group = WorkerGroup(generation, rank, self._backend)
        if group.size == 1:
            return group
        place: MeetingPlace
        if rank == 0:
            place = self._watcher.offer(generation)
        else:
            if is_new:
                self._coordination.arrive(generation.number, self.member)
            address = self._store_of(generation)
            if address is None:
                return None
            place = connect(address)
        place.come(rank)
        if not self._all_come(generation, place, given_up):
            return None
        try:
            group.form(place, self._timeout_s)
        except GroupBroken:
            group.close()
            raise
        return group

    def _store_of(self, generation: Generation) -> str | None:
        """Wait until the first member has opened it; None if the generation is replaced."""
        missing = _Missing(generation)
        while not self._is_told_to_leave():
            view = self.read()
            if view.generation != generation or view.finished:
                return None
            if view.store is not None:
                return view.store
            missing.tell({generation.members[0]})
            time.sleep(_LOOK_S)
        return None

    def _all_come(
        self, generation: Generation, place: MeetingPlace, given_up: Collection[str]
    ) -> bool:
        """Wait for all; False if the generation is replaced.

        Newcomers who were ready and do not come hold no state: after a while they are given up.
        """
        missing, deadline = _Missing(generation), time.monotonic() + self._timeout_s
        ranks = list(range(len(generation.members)))
        while ranks := place.missing(ranks):
            awaited = {generation.members[rank] for rank in ranks}
            view = self._watcher.view
            if view.generation.number > generation.number or view.finished:
                return False
            if self._is_told_to_leave():
                return False
            if time.monotonic() > deadline and awaited <= set(given_up):
                going_on = [member for member in generation.members if member not in awaited]
                self._propose(going_on, generation)
                return False
            missing.tell(awaited)
            time.sleep(_LOOK_S)
        return True


class _Missing:
    """Says once, after a while, who is being waited for."""

    def __init__(self, generation: Generation) -> None:
        self._number = generation.number
        self._deadline: float | None = time.monotonic() + _TOLD_AFTER_S

    def tell(self, members: Collection[str]) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._deadline = None
            names = ", ".join(sorted(members))
            _log.warning("Generation %d waits for %s, its state kept.", self._number, names)


def _staying(view: JobView, before: Generation | None, without: Collection[str]) -> list[str]:
    """Members of the newest generation who can go on at once.

    Not those who leave by agreement, and no newcomers that are not ready: nobody stops training
    for them. They wait, and a controller names them again.
    """
    present = {*(before.members if before else ()), *view.arrived}
    return [m for m in view.generation.members if m not in without and m in present]
