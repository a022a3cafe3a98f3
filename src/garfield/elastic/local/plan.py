"""The next steps from the workers that a job has to those that it should have. Pure.

Workers come and go by generations (`job/coordination.py`), and a slot is taken until its process
has ended. So new workers are started all at once, and only when there are free slots for them; who
is to go is left out of the next generation, and leaves by itself.

Lost workers still count until they are collected (`control/garbage.py`): nobody replaces them
before, and no generation is proposed for the sake of leaving them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from garfield.elastic.local.database import WorkerState


@dataclass(frozen=True)
class WorkerSeen:
    """A worker, as it is found."""

    member: str
    state: WorkerState
    alive: bool = True
    """Whether its process runs."""
    named: bool = True
    """Whether it was in a generation that this controller has proposed."""
    says: str = ""
    """The state that it reported last."""


@dataclass(frozen=True)
class Steps:
    """What to do now."""

    leave: tuple[str, ...] = ()
    """Members that are to go from now on."""
    start: int = 0
    """Workers to start."""
    members: tuple[str, ...] = ()
    """Members of the next generation, beside those who start; in the order of ranks."""
    propose: bool = False
    """Whether to propose it: there is something to change."""


def steps(
    wanted: int, workers: Sequence[WorkerSeen], generation: Sequence[str], free: int
) -> Steps:
    """What to do for a job that should have `wanted` workers, with so many free slots.

    `generation` are the members of the newest one that was proposed.
    """
    ranks = {member: rank for rank, member in enumerate(generation)}
    here = [each for each in workers if each.state is WorkerState.IN and each.alive]
    here.sort(key=lambda each: ranks.get(each.member, len(ranks)))  # stable: newcomers as started
    leave = tuple(each.member for each in here[wanted:])
    stay = here[:wanted]
    lost = {each.member for each in workers if each.state is WorkerState.LOST}
    start = max(0, wanted - len(here) - len(lost))
    going = any(each.alive for each in workers if each.state is WorkerState.LEAVING)
    if start > free or (not here and going):  # without survivors, those before must have ended
        start = 0
    members = tuple(each.member for each in stay)
    left_out = set(generation).difference(members) - lost
    ready = any(
        each.member not in ranks and (not each.named or each.says == "waiting") for each in stay
    )
    return Steps(leave, start, members, bool(members and (left_out or ready)))
