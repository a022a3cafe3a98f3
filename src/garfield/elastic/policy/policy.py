"""The contract of a policy, and the registry that knows all of them by name.

    @policy("first-only")
    class FirstOnly(Policy):
        '''All GPUs to whoever came first.'''

        def decide(self, snapshot: Snapshot) -> Decision:
            ...

From then on `garfield --load mine.py elastic simulate --policy first-only` knows it, and
`tests/contracts/test_policies.py` holds it to what every policy promises:

-   no more GPUs than there are, nobody below its minimum or above what it may have;
-   a share for every job of the snapshot;
-   the same snapshot, the same decision: a policy keeps nothing between two calls.

A policy is asked twice. `decide` is called in every round, 240 s apart unless said otherwise;
`admit` whenever a job has come or gone in between, and may only start jobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from garfield.core.errors import InputError
from garfield.core.naming import parse_call
from garfield.core.registry import Parameters, Registry
from garfield.elastic.policy.admission import startable
from garfield.elastic.policy.batch_size import kept_shares
from garfield.elastic.policy.decision import Decision
from garfield.elastic.policy.snapshot import Snapshot

POLICIES: Registry[type[Policy]] = Registry("a policy")

Kind = TypeVar("Kind", bound="type[Policy]")


class Policy(ABC):
    """Who gets how many workers, and which batch size."""

    @abstractmethod
    def decide(self, snapshot: Snapshot) -> Decision:
        """Take the decision of a round."""

    def admit(self, snapshot: Snapshot) -> Decision:
        """Start who waits, first come, first served, while its starting workers are idle."""
        starting = startable(snapshot)
        workers = {job.name: job.workers for job in snapshot.running} | starting
        return kept_shares(snapshot, workers)


def policy(name: str) -> Callable[[Kind], Kind]:
    """Register a class as a policy."""

    def register(kind: Kind) -> Kind:
        POLICIES.add(name, kind)
        return kind

    return register


def parse(text: str) -> Policy:
    """The policy that this text names: "era", "era(model='thesis')"."""
    name, params = parse_call(text, example="era(model='thesis')")
    kind = POLICIES[name]
    Parameters(name, kind.__init__, frozenset()).check(params)
    made: Policy = _called(kind, params)
    return made


def _called(kind: Callable[..., Policy], params: dict[str, Any]) -> Policy:
    return kind(**params)


def check_decision(snapshot: Snapshot, decision: Decision) -> None:
    """Raise InputError for a decision that no cluster could follow: a user's policy erred."""
    if set(decision.shares) != {job.name for job in snapshot.jobs}:
        raise InputError(
            "A decision must hold a share for every job of its snapshot, and no other."
        )
    if decision.gpus > snapshot.gpus:
        raise InputError(f"A decision gives {decision.gpus} of {snapshot.gpus} GPUs.")
    for job in snapshot.jobs:
        share = decision[job.name]
        if (
            share.workers
            and not job.request.min_workers <= share.workers <= job.request.max_workers
        ):
            raise InputError(
                f"{job.name} gets {share.workers} workers, and asked for "
                f"{job.request.min_workers} to {job.request.max_workers}."
            )
        if share.batch < 1 or share.accumulation < 1 or share.workers < 0:
            raise InputError(
                f"{job.name} gets {share.workers} workers, batch {share.batch}, accumulation "
                f"{share.accumulation}: the latter must be at least 1."
            )
