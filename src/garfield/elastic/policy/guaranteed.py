"""Guarantees per team, around any policy: what one team does not use, others borrow.

The policy inside is asked as if there were no teams. Where a team then has less than it is
guaranteed, and would get more if it were alone on as many GPUs, it is decided on alone, and the
others on what it leaves. So borrowed GPUs come back in the next round: borrowers shrink, and where
their minima do not allow that, the latest arrivals are suspended. Between rounds, when nobody
shrinks, teams below their guarantees start jobs first.

    guaranteed(policy='era', teams='vision:8,speech:4')

Jobs of other teams, and of none, have what is left over. After GPUs were lost guarantees may
exceed them: the first named are then kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from garfield.core.errors import ConfigError
from garfield.elastic.policy.decision import Decision, Share
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.policy import Policy, parse, policy
from garfield.elastic.policy.snapshot import Node, Snapshot


@policy("guaranteed")
class Guaranteed(Policy):
    """Another policy's decisions, with GPUs that teams are guaranteed."""

    def __init__(self, *, policy: str = "era", teams: str = "") -> None:
        """`policy` is the one inside; `teams` are names and GPUs: vision:8,speech:4."""
        self.policy = parse(policy)
        self.teams = read_guarantees(teams)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Ask for all teams together, and alone for those who would be short."""
        shares: dict[str, Share] = {}
        together, left = set(_teams(snapshot.jobs)), snapshot.gpus
        while True:
            joint = self.policy.decide(_part(snapshot, together, left))
            short = self._short(snapshot, together, joint, left)
            if not short:
                return Decision({**shares, **joint.shares})
            for team, alone in short.items():
                shares |= alone.shares
                left -= alone.gpus
                together.remove(team)

    def _short(
        self, snapshot: Snapshot, together: Collection[str], joint: Decision, gpus: int
    ) -> dict[str, Decision]:
        """Teams that get more alone, on what they are guaranteed, than with all the others."""
        found: dict[str, Decision] = {}
        for team, promised in self.teams.items():
            if team not in together:
                continue
            jobs = [job for job in snapshot.jobs if job.request.team == team]
            has = sum(joint[job.name].workers for job in jobs)
            promised = min(promised, gpus)
            if has < promised:
                alone = self.policy.decide(_part(snapshot, {team}, promised))
                if alone.gpus > has:
                    found[team] = alone
                    gpus -= alone.gpus
        return found

    def admit(self, snapshot: Snapshot) -> Decision:
        """Start jobs of teams below their guarantees first, then whoever comes next."""
        started: dict[str, Share] = {}
        idle = snapshot.idle
        for team, promised in self.teams.items():
            running = sum(job.workers for job in snapshot.running if job.request.team == team)
            room = min(promised - running, idle)
            if room > 0:
                alone = self.policy.admit(_part(snapshot, {team}, running + room))
                started |= {
                    job.name: alone[job.name]
                    for job in snapshot.waiting
                    if job.request.team == team and alone[job.name].workers
                }
                idle -= alone.gpus - running
        after = replace(snapshot, jobs=tuple(_after(job, started) for job in snapshot.jobs))
        return Decision({**self.policy.admit(after).shares, **started})


def read_guarantees(text: str) -> dict[str, int]:
    """Teams and their GPUs; ConfigError if the text does not say them."""
    found: dict[str, int] = {}
    for each in filter(None, map(str.strip, text.split(","))):
        team, _, gpus = each.partition(":")
        if not team.strip() or not gpus.strip().isdecimal() or team.strip() in found:
            raise ConfigError(
                f"{each!r} does not tell a team's guarantee. Name each team once, with its GPUs: "
                "vision:8,speech:4."
            )
        found[team.strip()] = int(gpus)
    return found


def check_guarantees(teams: Mapping[str, int], gpus: int) -> None:
    """Raise ConfigError for guarantees that no cluster of so many GPUs can keep."""
    if (promised := sum(teams.values())) > gpus:
        raise ConfigError(
            f"{len(teams)} teams are guaranteed {promised} GPUs, and there are {gpus}. Guarantee "
            "fewer, or add GPUs."
        )


def _teams(jobs: Iterable[Job]) -> Iterable[str]:
    return (job.request.team for job in jobs)


def _part(snapshot: Snapshot, teams: Collection[str], gpus: int) -> Snapshot:
    """These teams' jobs, on so many GPUs."""
    jobs = tuple(job for job in snapshot.jobs if job.request.team in teams)
    if gpus == snapshot.gpus:
        return replace(snapshot, jobs=jobs)
    return Snapshot((Node("part", gpus),), jobs, snapshot.at_s)


def _after(job: Job, started: Mapping[str, Share]) -> Job:
    given = started.get(job.name)
    return job if given is None else job.given(given.workers, given.batch)
