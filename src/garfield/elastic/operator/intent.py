"""From what a job has to what it should have: which pods to make, whom to name, whom to end. Pure.

An intent is written to the job's status before anything is done, and everything that follows can
be done again: so an operator may be killed at any moment and another one goes on. It names the
workers that the job should have. A worker whose pod is not there yet is still to be made, as long
as no generation was proposed since the intent; later its pod is gone, and so is the worker. Names
are never used again.

A generation is proposed once all its pods are made. Whoever is not in it leaves by itself when it
begins, and only then is its pod deleted: until that moment the others train with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from garfield.elastic.control.garbage import JobHealth
from garfield.elastic.job.coordination import JobView
from garfield.elastic.operator.worker_pods import PodState, WorkerPod

Pods = Mapping[str, WorkerPod]


@dataclass(frozen=True)
class Intent:
    """The workers that a job should have."""

    members: tuple[str, ...] = ()
    after: int = 0
    """The newest generation when this was written."""
    next: int = 0
    """The number of the next new worker."""


@dataclass(frozen=True)
class Steps:
    """What to do, in this order; doing it twice does no harm."""

    create: tuple[str, ...] = ()
    propose: tuple[str, ...] | None = None
    """Members of the next generation, after the newest of the view."""
    delete: tuple[str, ...] = ()


def intent_of(status: Mapping[str, Any]) -> Intent:
    """The intent that a job's status holds."""
    told = status.get("intent") or {}
    return Intent(tuple(told.get("members", ())), told.get("after", 0), told.get("next", 0))


def alive(intent: Intent, view: JobView, pods: Pods) -> list[str]:
    """Workers of the intent that live, or are still to be made.

    Nobody counts as long as newcomers have nobody to join and some of before may still run: only
    whoever knows that these have ended may start anew.
    """
    found = [
        member
        for member in intent.members
        if (member in pods and pods[member].is_living) or _is_unmade(member, intent, view, pods)
    ]
    if set(found) & set(view.generation.members) or may_start(view, pods, found):
        return found
    return []


def may_start(view: JobView, pods: Pods, newcomers: Collection[str] = ()) -> bool:
    """Whether all workers of before are known to have ended, or none ever trained."""
    others = (pod for pod in pods.values() if pod.name not in newcomers)
    return not view.begun or not any(pod.may_still_run for pod in others)


def seen(intent: Intent, view: JobView, pods: Pods) -> JobHealth:
    """What garbage collection looks at."""
    living = alive(intent, view, pods)
    gone = [member for member in intent.members if member not in living]
    starved = any(member in pods and pods[member].out_of_memory for member in gone)
    endings = [_ending(member, pods) for member in gone]
    return JobHealth(len(living), view.finished, endings, out_of_memory=starved)


def revised(
    intent: Intent,
    view: JobView,
    pods: Pods,
    workers: int,
    *,
    prefix: str,
    avoid: Collection[str] = (),
) -> Intent:
    """The intent with so many workers. Those on nodes to avoid go first, then the latest."""
    living = alive(intent, view, pods)
    by_worth = sorted(living, key=lambda m: m in pods and pods[m].node in avoid)  # stable
    stay = set(by_worth[:workers])
    members = [m for m in view.generation.members if m in stay]
    members += [m for m in living if m in stay and m not in members]
    missing = workers - len(members)
    members += [f"{prefix}-{intent.next + k}" for k in range(missing)]
    if tuple(members) == intent.members and not _is_named(members, view):
        return replace(intent, after=view.generation.number)
    if tuple(members) == intent.members:
        return intent
    return Intent(tuple(members), view.generation.number, intent.next + max(0, missing))


def steps(intent: Intent, view: JobView, pods: Pods) -> Steps:
    """What brings a job to its intent."""
    unmade = tuple(m for m in intent.members if _is_unmade(m, intent, view, pods))
    propose = None
    if intent.members and not _is_named(intent.members, view):
        propose = intent.members
    return Steps(unmade, propose, tuple(_superfluous(intent, view, pods)))


def _superfluous(intent: Intent, view: JobView, pods: Pods) -> list[str]:
    newest = view.generation
    has_begun = view.begun >= newest.number
    found = []
    for name, pod in pods.items():
        if name in intent.members or pod.state in (PodState.LEAVING, PodState.LOST):
            continue
        is_member = name in newest.members
        if pod.is_living:
            # who trains is needed until a generation without it has begun
            if not intent.members or (not is_member and (has_begun or not newest.number)):
                found.append(name)
        elif not is_member:
            found.append(name)  # the last generation's are kept for their logs
    return found


def _is_unmade(member: str, intent: Intent, view: JobView, pods: Pods) -> bool:
    newest = view.generation
    return member not in pods and newest.number == intent.after and member not in newest.members


def _is_named(members: Collection[str], view: JobView) -> bool:
    return tuple(members) == view.generation.members


def _ending(member: str, pods: Pods) -> str:
    pod = pods.get(member)
    if pod is None:
        return f"{member}: its pod is gone"
    return pod.ending or f"{member}: {pod.state.value}"
