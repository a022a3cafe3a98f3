"""A worker's part in a job: the group it trains in now, and how it comes into the next one.

    start       form the first group, or be let into one that trains
    after_step  do what all have agreed on: another generation, another batch size, somebody leaves
    recover     after a failure: meet again, whoever is to go on
    finish      at the end of the training

Each time a group forms, its members compare what they have. Whoever has applied most steps gives
its state to the others; if all have the same, nothing is sent; a checkpoint is read only if it
is ahead of all of them, as when no member of before is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError, CoordinationUnreachable, NodeFailed, RunError
from garfield.elastic.job.agreement import Decision, Vote, VoteRhythm, latest_batch
from garfield.elastic.job.checkpoint_writer import CheckpointWriter
from garfield.elastic.job.coordination import BatchSize, CheckpointPointer
from garfield.elastic.job.environment import JobAccess
from garfield.elastic.job.group import (
    NCCL,
    GroupBroken,
    WorkerGroup,
    backend_for,
    use_interface_of,
)
from garfield.elastic.job.membership import Membership
from garfield.elastic.job.options import ElasticOptions
from garfield.elastic.job.state import FRESH, TrainingState
from garfield.elastic.job.torchrun import TorchrunMembership
from garfield.elastic.job.watcher import Watcher

_log = logging.getLogger("garfield.elastic.job")
_LOOK_S = 0.02
_MOST_FAILURES = 3


class Participation:
    """Of one process, from its start to its end."""

    def __init__(
        self,
        state: TrainingState,
        access: JobAccess,
        options: ElasticOptions,
        let_go: Callable[[], None],
    ) -> None:
        """`let_go` drops what holds on to the group, before it is closed: a wrapper that is the
        last to hold it would end its threads while Python waits for them, and they for Python."""
        self._state, self._options, self._let_go = state, options, let_go
        self._coordination = access.coordination
        backend, timeout_s = backend_for(state.model), options.collective_timeout_s
        self._membership: Membership | TorchrunMembership
        if access.member is None:
            self._membership = TorchrunMembership(
                access.coordination, backend=backend, timeout_s=timeout_s
            )
            self.watcher = Watcher(access.coordination, self._membership.member, options.poll_s)
        else:
            self.watcher = Watcher(access.coordination, access.member, options.poll_s)
            self._membership = Membership(
                access.coordination, access.member, self.watcher, backend=backend,
                timeout_s=timeout_s, is_told_to_leave=lambda: self.told_to_leave,
            )  # fmt: skip
        self.member = self._membership.member
        self._is_torchruns = access.member is None
        self._ends_when_broken = self._is_torchruns or backend == NCCL
        self._checkpoints: CheckpointWriter | None = None
        checkpoint_dir = options.checkpoint_dir or access.checkpoint_dir
        if checkpoint_dir is not None:
            self._checkpoints = CheckpointWriter(Path(checkpoint_dir), access.coordination)
        self.group: WorkerGroup | None = None
        """None before the first, and after the last."""
        self.batch = BatchSize(options.batch, since_us=0)
        self.told_to_leave = False
        self.left = False
        self._others_go_on = False
        """Whether those who go on may still need this group's connections."""
        self._failures = _Failures()
        self._rhythm = VoteRhythm(options.poll_s)  # a vote costs about half a millisecond
        if not self._is_torchruns:
            use_interface_of(access.coordination.host)

    def start(self) -> None:
        """Wait to be let in; `left` if that does not happen."""
        self.watcher.report({"state": "waiting"})
        self.watcher.start()
        self._enter_next()

    def vote(self) -> Vote | None:
        """Say what this worker knows, before a step; None if that step has no vote."""
        group = self._present
        if group.size > 1 and not self._rhythm.is_due:
            return None
        generation = self.watcher.ready_generation(group.generation)
        batch, leaving = self._newest_batch(), self.told_to_leave
        return Vote(group, generation, batch, leaving, self._rhythm.wished)

    def after_step(self, vote: Vote | None) -> None:
        """Do what was decided in a step; GroupBroken if a member is gone."""
        decision = None if vote is None else vote.wait()
        agreed = None if decision is None else decision.next_vote
        self._rhythm.stepped(agreed, time.monotonic())
        if decision is not None:
            self._act_on(decision)

    def _act_on(self, decision: Decision) -> None:
        """Do what all members do now; GroupBroken if one of them is gone."""
        group = self._present
        if decision.batch_since_us > self.batch.since_us:
            self.batch = latest_batch(group, self._newest_batch())
        if decision.leaving:
            self._part_from(decision.leaving)
        elif decision.generation > group.generation.number:
            newest = self._membership.read().generation
            if newest.rank_of(self.member) is None:
                self._others_go_on = bool(set(newest.members) & set(group.generation.members))
                if not self._others_go_on:
                    self.save()  # nobody else can hand the state over
                self.left = True
            else:
                self._enter_next()

    def recover(self, problem: GroupBroken) -> None:
        """Go on after a step that failed, with whoever is there."""
        group = self._present
        if group.size == 1:
            return  # its own memory was too small: the batch is smaller now
        self._failures.count(problem, (self._state.step, self.batch, group.generation.members))
        _log.warning("Step %d of %s: %s", self._state.step + 1, self.member, problem)
        if self._ends_when_broken:
            self._save_what_is_here()
            raise NodeFailed(f"{problem} Start this process anew.") from problem
        self.watcher.report({"state": "waiting", "step": self._state.step})
        self._enter_next(failed=group.generation.number)

    def halve_batch(self) -> None:
        """Use, and allow, no more than half from now on; ConfigError if a sample is too much."""
        size = self.batch.allowed // 2
        if size < 1:
            raise ConfigError("One sample does not fit into memory. Give the worker more of it.")
        since_us = max(time.time_ns() // 1000, self.batch.since_us + 1)
        self.batch = BatchSize(size, since_us, most=size)
        _log.warning("%s has no memory for %d samples.", self.member, 2 * size)
        try:
            self._coordination.set_batch(self.batch)
        except CoordinationUnreachable as problem:
            _log.warning("%s", problem)

    def break_off(self) -> None:
        """Let the others notice that this worker cannot finish its step."""
        self._end_group()

    def checkpoint_if_due(self) -> None:
        """Begin to write one, if it is time and this worker's turn."""
        due = self._state.step % self._options.checkpoint_every == 0
        if due and self._checkpoints is not None and self._present.rank == 0:
            self._checkpoints.start(self._state, self._present.generation.number)

    def save(self) -> None:
        """Write a checkpoint now, if this is the first member."""
        if self._checkpoints is not None and self._present.rank == 0:
            self._checkpoints.save(self._state, self._present.generation.number)

    def finish(self) -> None:
        """End the training with all the others."""
        while not self.left:
            try:
                self.save()
                self._present.gather([self._state.step])  # all have come to the end
            except GroupBroken as problem:
                if not self._membership.read().finished:
                    self.recover(problem)
                    continue
            break
        if not self.left:
            try:
                self._coordination.finish()
            except CoordinationUnreachable as problem:
                _log.warning("%s", problem)

    def linger(self) -> None:
        """Stay until those who go on have met: they may still be reading what was sent last."""
        deadline = time.monotonic() + self._options.grace_s
        while self._others_go_on and time.monotonic() < deadline:
            view = self.watcher.view
            if view.finished or view.begun > self._present.generation.number:
                return
            time.sleep(_LOOK_S)

    def close(self, last_report: dict[str, Any]) -> None:
        """Let go of everything."""
        self.watcher.report(last_report)
        self.watcher.close()
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._end_group()
        self._coordination.close()

    def _end_group(self) -> None:
        if self.group is not None:
            self._let_go()
            self.group.close()

    @property
    def _present(self) -> WorkerGroup:
        if self.group is None:
            raise RunError("This worker is in no group: it has left the training.")
        return self.group

    def _newest_batch(self) -> BatchSize:
        known = self.watcher.view.batch
        return known if known is not None and known.since_us > self.batch.since_us else self.batch

    def _part_from(self, ranks: frozenset[int]) -> None:
        group = self._present
        if self._is_torchruns and group.rank not in ranks:
            self.save()
            # an exit code of 0 would tell torchrun that the training has come to its end
            raise NodeFailed("torchrun ends another worker, and starts all of them anew.")
        if group.rank not in ranks:
            self._enter_next(without={group.generation.members[rank] for rank in ranks})
            return
        self._others_go_on = len(ranks) < group.size and not self._is_torchruns
        if not self._others_go_on:
            self.save()
        self.left = True

    def _enter_next(
        self, *, failed: int = 0, without: frozenset[str] | set[str] = frozenset()
    ) -> None:
        """Form groups until one holds."""
        before = None if self.group is None else self.group.generation
        while True:
            self._end_group()
            group = self._membership.next_group(before, failed=failed, without=without)
            if group is None:
                self._leave_unmet()
                return
            self.group = group
            self._rhythm.restart(time.monotonic())
            try:
                self._settle(group)
                return
            except GroupBroken as problem:
                _log.warning("Generation %d did not begin: %s", group.generation.number, problem)
                failed, without = group.generation.number, frozenset()
                before = before or group.generation

    def _leave_unmet(self) -> None:
        """Leave while no group is formed; if others wait for this one, they need not."""
        self.left = True
        if self.group is None or not self.told_to_leave or self._state.step == FRESH:
            return
        self._save_what_is_here()  # the others may be newcomers, who have nothing
        newest = self._membership.read().generation
        others = [member for member in newest.members if member != self.member]
        if others and len(others) < len(newest.members):
            try:
                self._coordination.propose(others, after=newest.number)
            except CoordinationUnreachable as problem:
                _log.warning("%s", problem)

    def _save_what_is_here(self) -> None:
        """Write a checkpoint, whoever else may do the same: the one with most steps counts."""
        if self._checkpoints is not None:
            self._checkpoints.save(self._state, self._present.generation.number)

    def _settle(self, group: WorkerGroup) -> None:
        """Give all members the state and the batch size of the one who is ahead."""
        begins, pointer = 1, None
        if group.rank == 0:
            try:
                begins = int(self._coordination.begin(group.generation.number))
            except CoordinationUnreachable as problem:
                raise GroupBroken(f"its beginning cannot be told: {problem}") from problem
            pointer = self._membership.read().checkpoint
        saved = FRESH if pointer is None else pointer.step
        said = group.gather([*self._state.version, saved, begins])
        _, _, saved, begins = said[0]
        if not begins:
            raise GroupBroken("a later generation has begun.")
        versions = [(step, generation) for step, generation, *_ in said]
        self._catch_up(group, versions, saved, pointer)
        self.batch = latest_batch(group, self._newest_batch())
        if self._state.reference_step is None:
            samples = self._options.fixed_step or group.size * self.batch.allowed
            self._state.reference_step = self._options.reference_step or samples

    def _catch_up(
        self,
        group: WorkerGroup,
        versions: list[tuple[int, int]],
        saved: int,
        pointer: CheckpointPointer | None,
    ) -> None:
        newest = max(versions)
        source = versions.index(newest)
        if saved > newest[0]:
            source = 0
            if pointer is not None:  # on the first member, who has read it
                self._load(pointer)
        elif newest[0] == FRESH:
            if group.rank == source:
                self._state.step = 0  # a training begins, with the first member's parameters
        elif len(set(versions)) == 1:
            return
        if group.size > 1:
            self._state.exchange(group, source)

    def _load(self, pointer: CheckpointPointer) -> None:
        if self._checkpoints is None:
            raise ConfigError(
                f"The training is to go on from {pointer.path}, and this worker has no "
                "checkpoint_dir to find it in."
            )
        self._checkpoints.load(self._state, pointer)


class _Failures:
    """Tells a worker that ended from an error that comes again whoever is there."""

    def __init__(self) -> None:
        self._last: object = None
        self._count = 0

    def count(self, problem: GroupBroken, what: object) -> None:
        """Raise its cause if the same step has failed too often with the same members and batch."""
        self._count = self._count + 1 if self._last == what else 1
        self._last = what
        if self._count > _MOST_FAILURES:
            raise problem.__cause__ or problem
