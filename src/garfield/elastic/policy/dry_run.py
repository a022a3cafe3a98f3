"""A dry run: decisions are taken and told, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable

from garfield.elastic.policy.batch_size import kept_shares
from garfield.elastic.policy.decision import Decision
from garfield.elastic.policy.decision_log import Asked
from garfield.elastic.policy.policy import Policy
from garfield.elastic.policy.snapshot import Snapshot


class DryRun(Policy):
    """A policy that is asked, but not followed: every job keeps what it has.

    Whoever runs jobs takes it in the place of the policy (`--dry-run`): waiting jobs wait on, so it
    is for looking at a cluster that somebody else drives.
    """

    def __init__(self, policy: Policy, tell: Callable[[Asked, Snapshot, Decision], None]) -> None:
        """`tell` is given each decision that would have been followed."""
        self._policy = policy
        self._tell = tell

    def decide(self, snapshot: Snapshot) -> Decision:
        """Take the decision of a round, tell it, and change nothing."""
        self._tell("decide", snapshot, self._policy.decide(snapshot))
        return _unchanged(snapshot)

    def admit(self, snapshot: Snapshot) -> Decision:
        """Decide who would start, tell it, and start nobody."""
        self._tell("admit", snapshot, self._policy.admit(snapshot))
        return _unchanged(snapshot)


def _unchanged(snapshot: Snapshot) -> Decision:
    workers = {job.name: job.workers for job in snapshot.running}
    return kept_shares(snapshot, workers, "a dry run changes nothing")
