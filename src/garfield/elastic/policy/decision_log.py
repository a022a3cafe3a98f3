"""Decisions kept with all that they were taken from, so that they can be taken again.

A decision is one event of a run (`runs/run_directory.py`), a line of JSON:

    {"event": "decision", "asked": "decide", "policy": "era", "at_s": 240.0,
     "snapshot": {…}, "decision": {…}}

`asked` is the method of the policy that was called. Snapshot and decision are their dataclasses,
field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar, cast

from garfield.core.errors import InputError
from garfield.core.events import Event
from garfield.elastic.policy.decision import Decision, Share
from garfield.elastic.policy.jobs import Job, JobRequest
from garfield.elastic.policy.measurement import Measurement
from garfield.elastic.policy.policy import Policy, parse
from garfield.elastic.policy.snapshot import Node, Snapshot

Asked: TypeAlias = Literal["decide", "admit"]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Replayed:
    """A recorded decision beside the one that is taken now."""

    at_s: float
    asked: Asked
    recorded: Decision
    now: Decision

    @property
    def agrees(self) -> bool:
        """Whether both give every job the same; reasons, which are for people, may differ."""
        return _without_reasons(self.recorded) == _without_reasons(self.now)

    @property
    def differing(self) -> dict[str, tuple[Share, Share]]:
        """Shares that differ, by job: recorded and now."""
        old, new = _without_reasons(self.recorded), _without_reasons(self.now)
        return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def answer(policy: Policy, asked: Asked, snapshot: Snapshot) -> Decision:
    """What a policy says when it is asked that."""
    return policy.decide(snapshot) if asked == "decide" else policy.admit(snapshot)


def as_event(policy: str, asked: Asked, snapshot: Snapshot, decision: Decision) -> Event:
    """The event that keeps a decision; `policy` is the text that names it."""
    return {
        "event": "decision",
        "asked": asked,
        "policy": policy,
        "at_s": snapshot.at_s,
        "snapshot": snapshot,
        "decision": decision,
    }


def replayed(events: Iterable[Event], policy: str | None = None) -> list[Replayed]:
    """All decisions among the events taken again, by the policy that took them or by another."""
    made: dict[str, Policy] = {}
    found = []
    for event in events:
        if event["event"] != "decision":
            continue
        name = policy or str(event.get("policy"))
        if name not in made:
            made[name] = parse(name)
        asked = event.get("asked")
        if asked not in ("decide", "admit"):
            raise InputError(f"A recorded decision was asked {asked!r}, not decide or admit.")
        snapshot, recorded = snapshot_of(event["snapshot"]), decision_of(event["decision"])
        again = answer(made[name], cast(Asked, asked), snapshot)
        found.append(Replayed(snapshot.at_s, cast(Asked, asked), recorded, again))
    return found


def snapshot_of(told: Mapping[str, Any]) -> Snapshot:
    """The snapshot that an event holds."""
    return recorded_as(
        Snapshot,
        told,
        nodes=lambda nodes: tuple(recorded_as(Node, each) for each in nodes),
        jobs=lambda jobs: tuple(map(job_of, jobs)),
    )


def decision_of(told: Mapping[str, Any]) -> Decision:
    """The decision that an event holds."""
    return recorded_as(
        Decision,
        told,
        shares=lambda shares: {name: recorded_as(Share, each) for name, each in shares.items()},
    )


def job_of(told: Mapping[str, Any]) -> Job:
    """The job that an event holds."""
    return recorded_as(
        Job,
        told,
        request=lambda request: recorded_as(JobRequest, request),
        measurements=lambda all_: tuple(recorded_as(Measurement, each) for each in all_),
        nodes=tuple,
    )


def recorded_as(kind: type[Kind], told: Any, **inner: Callable[[Any], Any]) -> Kind:
    """A dataclass from its recorded fields, some read by `inner`; InputError if they are not its
    own."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(told, Mapping) or not told.keys() <= names:
        raise InputError(f"This is no recorded {kind.__name__}: {str(told)[:80]}.")
    try:
        return kind(**{name: inner.get(name, _same)(value) for name, value in told.items()})
    except (TypeError, AttributeError) as problem:
        raise InputError(f"A recorded {kind.__name__} is incomplete: {problem}.") from None


def _same(value: Any) -> Any:
    return value


def _without_reasons(decision: Decision) -> dict[str, Share]:
    return {
        name: Share(each.workers, each.batch, each.accumulation, each.learning_rate)
        for name, each in decision.shares.items()
    }
