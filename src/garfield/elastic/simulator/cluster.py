"""A cluster on a virtual clock: jobs arrive, rounds are decided, jobs end.

Only four things happen: a job arrives, a job ends, a round is due, or a point of the time series
is. The clock jumps from one to the next. At arrivals and ends the policy is asked to `admit`, in
rounds to `decide`; it is shown reports, and never a job's truth. Same workload, same policy: same
outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from garfield.core.errors import RunError
from garfield.elastic.policy.admission import check_fits
from garfield.elastic.policy.decision import Decision
from garfield.elastic.policy.decision_log import Asked, answer
from garfield.elastic.policy.policy import Policy, check_decision
from garfield.elastic.policy.snapshot import Node, Snapshot
from garfield.elastic.simulator.outcome import Outcome, Series
from garfield.elastic.simulator.profiles import GPUS_PER_NODE
from garfield.elastic.simulator.running_job import RunningJob
from garfield.elastic.simulator.settings import ClusterSettings
from garfield.elastic.simulator.workload import SimulatedJob

Told = Callable[[Asked, Snapshot, Decision], None]
"""Takes each decision with its snapshot."""

_IDLE_ROUNDS = 1000
"""Rounds without progress after which a policy is taken to have forgotten its jobs."""


def simulate(
    policy: Policy,
    workload: Sequence[SimulatedJob],
    cluster: ClusterSettings,
    *,
    every_s: float | None = None,
    tell: Told | None = None,
) -> Outcome:
    """Run all jobs under a policy; with `every_s` the outcome holds a time series."""
    for job in workload:
        check_fits(job.name, job.request, cluster.gpus)
    return _Cluster(policy, workload, cluster, every_s, tell).run()


class _Cluster:
    """The state of one simulation."""

    def __init__(
        self,
        policy: Policy,
        workload: Sequence[SimulatedJob],
        cluster: ClusterSettings,
        every_s: float | None,
        tell: Told | None,
    ) -> None:
        self._policy, self._cluster, self._tell = policy, cluster, tell
        self._coming = sorted(workload, key=lambda job: job.arrives_s)[::-1]  # the next one last
        self._total = len(workload)
        self._active: list[RunningJob] = []
        self._finished: list[RunningJob] = []
        self._nodes = nodes_of(cluster.gpus)
        self._round_s = cluster.decide_s
        self._every_s = every_s
        self._point_s = 0.0 if every_s else math.inf
        self._series = Series()
        self._idle_rounds = 0

    def run(self) -> Outcome:
        """Go from event to event until all jobs are done, or the time is over."""
        end_s = self._cluster.end_s or math.inf
        now_s = 0.0
        while self._coming or self._active:
            now_s = min(self._next_s(), end_s)
            self._happen(now_s)
            if now_s >= end_s:
                break
        if self._every_s:
            self._series.add(now_s, self._active, self._finished)
        return Outcome(
            self._cluster.gpus, now_s, tuple(self._finished), tuple(self._active), self._total,
            tuple(self._series.points),
        )  # fmt: skip

    def _next_s(self) -> float:
        arrival = self._coming[-1].arrives_s if self._coming else math.inf
        if not self._active:  # rounds decide nothing until somebody comes
            while self._round_s < arrival:
                self._round_s += self._cluster.decide_s
        end = min((job.ends_s for job in self._active), default=math.inf)
        return min(arrival, end, self._round_s, self._point_s)

    def _happen(self, now_s: float) -> None:
        """All that is due now: ends, then arrivals, then a round or an admission."""
        for job in self._active:
            job.advance(now_s)
        came = self._let_come(now_s)
        went = self._let_go(now_s)
        if now_s >= self._round_s:
            self._round_s += self._cluster.decide_s
            self._ask("decide", now_s)
            for job in self._active:
                job.count_round()
            self._check_progress(now_s)
        elif came or (went and any(not job.job.workers for job in self._active)):
            self._ask("admit", now_s)
        if now_s >= self._point_s:
            self._series.add(now_s, self._active, self._finished)
            self._point_s += self._every_s or math.inf

    def _let_come(self, now_s: float) -> bool:
        before = len(self._coming)
        while self._coming and self._coming[-1].arrives_s <= now_s:
            arrival = self._total - len(self._coming)
            self._active.append(RunningJob(self._coming.pop(), arrival, self._cluster))
        return len(self._coming) < before

    def _let_go(self, now_s: float) -> bool:
        done = [job for job in self._active if job.is_done]
        for job in done:
            job.finish(now_s)
        self._finished += done
        if done:
            self._active = [job for job in self._active if not job.is_done]
        return bool(done)

    def _ask(self, asked: Asked, now_s: float) -> None:
        for job in self._active:
            job.report(now_s)
        snapshot = Snapshot(self._nodes, tuple(each.job for each in self._active), now_s)
        decision = answer(self._policy, asked, snapshot)
        check_decision(snapshot, decision)
        if self._tell is not None:
            self._tell(asked, snapshot, decision)
        for job in self._active:
            job.apply(decision[job.truth.name], now_s)

    def _check_progress(self, now_s: float) -> None:
        stands = all(job.speed is None for job in self._active) and bool(self._active)
        self._idle_rounds = self._idle_rounds + 1 if stands else 0
        if self._idle_rounds > _IDLE_ROUNDS:
            raise RunError(
                f"The policy has started none of {len(self._active)} waiting jobs in "
                f"{_IDLE_ROUNDS} rounds, until {now_s:.0f} s."
            )


def nodes_of(gpus: int) -> tuple[Node, ...]:
    """A cluster of that many GPUs, as many to a node as were profiled."""
    whole, rest = divmod(gpus, GPUS_PER_NODE)
    sizes = [GPUS_PER_NODE] * whole + [rest] * bool(rest)
    return tuple(Node(f"node-{at}", size, "t4") for at, size in enumerate(sizes))
