"""From records of jobs to a policy's decision, and from that to what changes for each job.

A decision counts once it is recorded: `tell` is called before anything is changed. In a dry run
what would have been decided is told, and every job keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from garfield.core.events import Sink
from garfield.elastic.control.record import JobRecord
from garfield.elastic.policy.decision import Change, Decision, Share
from garfield.elastic.policy.decision_log import Asked, answer, as_event
from garfield.elastic.policy.dry_run import DryRun
from garfield.elastic.policy.policy import check_decision, parse
from garfield.elastic.policy.snapshot import Node, Snapshot


@dataclass(frozen=True)
class JobChange:
    """What a decision changes for one job: its workers, its batch, or both."""

    before: JobRecord
    after: JobRecord
    share: Share
    """What it was given, with the reason."""

    @property
    def name(self) -> str:
        return self.after.name

    @property
    def change(self) -> Change:
        """What happens to its workers."""
        return self.share.change(self.before.job)

    @property
    def rescales(self) -> bool:
        """Whether it has another number of workers now."""
        return self.before.job.workers != self.after.job.workers

    @property
    def sets_batch(self) -> bool:
        """Whether its workers must be told another batch size."""
        return self.before.job.batch != self.after.job.batch


class Decider:
    """Asks one policy, named by a text."""

    def __init__(self, policy: str, tell: Sink, *, dry_run: bool = False) -> None:
        """`tell` takes the event of each decision; with `dry_run` it is not followed."""
        self.policy = policy
        self._tell = tell
        asked = parse(policy)
        self._asked = DryRun(asked, self._record) if dry_run else asked
        self._is_dry = dry_run

    def ask(
        self, asked: Asked, records: Iterable[JobRecord], nodes: Sequence[Node], at_s: float
    ) -> list[JobChange]:
        """Decide, and record it; changes for every active job, those who give up workers first.

        A job for which nothing changes has one too, as its rounds are counted.
        """
        active = [record for record in records if record.is_active]
        snapshot = snapshot_of_jobs(active, nodes, at_s)
        decision = answer(self._asked, asked, snapshot)
        check_decision(snapshot, decision)
        if not self._is_dry:
            self._record(asked, snapshot, decision)
        changes = [_changed(record, decision[record.name], asked, at_s) for record in active]
        return sorted(changes, key=_growth)

    def _record(self, asked: Asked, snapshot: Snapshot, decision: Decision) -> None:
        self._tell(as_event(self.policy, asked, snapshot, decision))


def snapshot_of_jobs(records: Iterable[JobRecord], nodes: Sequence[Node], at_s: float) -> Snapshot:
    """What a policy may look at: jobs that run or wait."""
    return Snapshot(tuple(nodes), tuple(each.job for each in records if each.is_active), at_s)


def _changed(record: JobRecord, share: Share, asked: Asked, at_s: float) -> JobChange:
    after = record.given(share, at_s)
    if asked == "decide":
        after = replace(after, job=after.job.after_round())
    return JobChange(record, after, share)


def _growth(change: JobChange) -> int:
    return change.after.job.workers - change.before.job.workers
