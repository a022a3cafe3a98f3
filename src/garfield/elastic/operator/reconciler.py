"""One turn of the operator: look at everything, decide once for all jobs, do what follows.

    look        nodes, pods and jobs, listed anew: nothing is believed from the turn before
    examine     new jobs, changed specs, what workers told, workers that ended (control/garbage)
    decide      one decision about all jobs (control/decider), recorded before it counts
    converge    per job: its status, then pods and generations (`job_writer`)

What a job must not lose stands in its status. If another operator has written there meanwhile,
this one's turn ends (`Overtaken`): it leads no more.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from garfield.core.errors import ClusterError, ClusterUnreachable, ConfigError, ObjectAbsent
from garfield.core.events import Sink
from garfield.elastic.control.decider import Decider, JobChange
from garfield.elastic.control.garbage import Verdict, examined
from garfield.elastic.control.periods import Timetable
from garfield.elastic.control.record import JobRecord, record_of
from garfield.elastic.control.reports import WorkerCapacity, with_reports
from garfield.elastic.job.on_kubernetes import reports_in, view_of
from garfield.elastic.kubernetes.client import ApiServer, Object
from garfield.elastic.kubernetes.naming import core_path, jobs_path, reports_map
from garfield.elastic.operator.capacity import capacity, silent_s
from garfield.elastic.operator.intent import intent_of, seen
from garfield.elastic.operator.job_writer import JobTurn, JobWriter, Overtaken
from garfield.elastic.operator.metrics import Metrics
from garfield.elastic.operator.quantities import amount
from garfield.elastic.operator.settings import OperatorSettings
from garfield.elastic.operator.specification import full_name, request_of
from garfield.elastic.operator.worker_pods import WorkerPod, created_s, observed
from garfield.elastic.policy.admission import check_fits
from garfield.elastic.policy.decision import Change
from garfield.elastic.policy.jobs import Job
from garfield.elastic.policy.snapshot import Node

Turns = dict[str, JobTurn]
_log = logging.getLogger("garfield.elastic.operator")


@dataclass(frozen=True)
class Cluster:
    """What was listed at the beginning of a turn."""

    nodes: Sequence[Object]
    """Those that are ready, or were a moment ago."""
    pods: Sequence[Object]
    jobs: Sequence[Object]

    @property
    def ready(self) -> frozenset[str]:
        return frozenset(node["metadata"]["name"] for node in self.nodes)

    @property
    def cordoned(self) -> frozenset[str]:
        found = (node for node in self.nodes if node["spec"].get("unschedulable"))
        return frozenset(node["metadata"]["name"] for node in found)

    def pods_of(self, owners: Iterable[str]) -> Iterator[Object]:
        """Pods that belong to objects with these uids."""
        wanted = set(owners)
        for pod in self.pods:
            owned_by = pod["metadata"].get("ownerReferences", [])
            if any(owner["uid"] in wanted for owner in owned_by):
                yield pod


class Reconciler:
    """The operator's work, one turn at a time. Times are seconds since 1970."""

    def __init__(
        self,
        api: ApiServer,
        settings: OperatorSettings,
        tell: Sink,
        metrics: Metrics,
        at_s: float,
        is_leader: Callable[[], bool] = lambda: True,
    ) -> None:
        """`tell` takes decisions; `is_leader` is asked before every write."""
        self._api, self._settings, self._metrics = api, settings, metrics
        self._is_leader = is_leader
        self._writer = JobWriter(api, settings.resource, self._may_write)
        self._decider = Decider(settings.policy, tell, dry_run=settings.dry_run)
        periods = settings.periods
        self._monitor = Timetable(periods.monitor_s, at_s - periods.monitor_s)
        self._decide = Timetable(periods.decide_s, at_s)
        self._collect = Timetable(periods.collect_s, at_s)
        self._lost_s = float("inf")
        """When a node that is silent now will count as lost."""
        self._asked_about: object = None
        self._refusals: dict[str, str] = {}
        """What the API server last refused of a job, by its name: told once."""

    def next_s(self) -> float:
        """When a turn is due even if nothing happens."""
        return min(self._monitor.due_s, self._decide.due_s, self._collect.due_s, self._lost_s)

    def turn(self, at_s: float) -> None:
        """Do all that is to be done now; ClusterUnreachable and Overtaken end it early."""
        cluster = self._look(at_s)
        self._collect.is_due(at_s)  # every turn looks for workers that ended
        turns = self._examined(cluster, at_s)
        nodes = self._capacity(cluster, turns)
        self._decide_about(turns, nodes, at_s)
        for each in turns.values():
            self._converge(each, _unfit(each.record, nodes), cluster.cordoned, at_s)
        self._metrics.cluster(nodes, [each.record for each in turns.values()])

    def _look(self, at_s: float) -> Cluster:
        nodes, self._lost_s = [], float("inf")
        for node in self._api.list(core_path("nodes")):
            silence_s = silent_s(node, at_s)
            if silence_s <= self._settings.node_grace_s:
                nodes.append(node)
                if silence_s:
                    lost_s = at_s + self._settings.node_grace_s - silence_s
                    self._lost_s = min(self._lost_s, lost_s)
        pods = self._api.list(core_path("pods"))
        # jobs last: workers end after they have said that the training is finished
        return Cluster(nodes, pods, self._api.list(jobs_path()))

    def _converge(self, turn: JobTurn, unfit: str, cordoned: Collection[str], at_s: float) -> None:
        """Write about one job; what the API server refuses of it holds up no other job."""
        name = turn.record.name
        try:
            self._writer.converge(turn, unfit, cordoned, at_s)
            self._refusals.pop(name, None)
        except ClusterUnreachable:
            raise
        except ObjectAbsent:
            _log.info("%s was deleted meanwhile.", name)
        except ClusterError as problem:  # a quota, or a pod's template that is none
            if self._refusals.get(name) != str(problem):
                self._refusals[name] = str(problem)
                _log.warning("%s: %s", name, problem)
                self._writer.explain(turn.object, "Refused", str(problem), is_warning=True)

    def _may_write(self) -> bool:
        if self._settings.dry_run:
            return False
        if not self._is_leader():
            raise Overtaken("the lease is not ours any more.")
        return True

    # -- examine ----------------------------------------------------------------

    def _examined(self, cluster: Cluster, at_s: float) -> Turns:
        """All accepted jobs by name, after what happened to their workers."""
        pods: dict[str, list[Object]] = defaultdict(list)
        for pod in cluster.pods:
            for owner in pod["metadata"].get("ownerReferences", []):
                pods[owner["uid"]].append(pod)
        turns = []
        for job in sorted(cluster.jobs, key=_age):
            timeout_s = self._settings.start_timeout_s
            seen_pods = observed(pods[job["metadata"]["uid"]], cluster.ready, at_s, timeout_s)
            turn = self._accepted(job, seen_pods, at_s)
            if turn is not None:
                turns.append(turn)
        _number_arrivals(turns)
        is_monitored = self._monitor.is_due(at_s)
        for turn in turns:
            if turn.record.is_active:
                self._examine(turn, at_s, is_monitored)
        return {turn.record.name: turn for turn in turns}

    def _accepted(self, job: Object, pods: dict[str, WorkerPod], at_s: float) -> JobTurn | None:
        """A job as it was left; None if it is being deleted, or asks for what cannot be.

        Its own script may write to its status: what cannot be read there must not hold up others.
        """
        if "deletionTimestamp" in job["metadata"]:
            return None
        status = job.get("status") or {}
        try:
            record = _known_record(status)
            request = request_of(job["spec"], has_started=bool(record and record.started_s))
            if record is None:
                fresh = Job(full_name(job), request, arrival=0)
                record = JobRecord(fresh, submitted_s=at_s, since_s=at_s, why="waits for GPUs")
            elif record.is_active and record.job.request != request:
                record = replace(record, job=replace(record.job, request=request))
                self._decide.last_s = float("-inf")  # what it asks for now counts now
            return JobTurn(job, record, intent_of(status), view_of(job), pods)
        except (ValueError, KeyError, TypeError) as problem:
            self._writer.refuse(job, str(problem))
            return None

    def _examine(self, turn: JobTurn, at_s: float, is_monitored: bool) -> None:
        """Take up what its workers told, and act on those that ended."""
        found = seen(turn.intent, turn.view, turn.pods)
        has_workers = bool(turn.record.job.workers)
        is_hurt = found.finished or found.alive < turn.record.job.workers
        if has_workers and (is_monitored or is_hurt):
            turn.record = self._with_reports(turn)
        if not has_workers and not found.finished:
            return
        verdict, after = examined(turn.record, found, at_s, retries=self._settings.retries)
        if verdict is Verdict.HEALTHY:
            return
        turn.record = after
        is_warning = verdict is not Verdict.FINISHED
        reason = verdict.value.capitalize()
        self._writer.explain(turn.object, reason, after.why, is_warning=is_warning)

    def _with_reports(self, turn: JobTurn) -> JobRecord:
        metadata = turn.object["metadata"]
        path = core_path("configmaps", metadata["namespace"])
        try:
            reports = reports_in(self._api.get(f"{path}/{reports_map(metadata['name'])}"))
        except ObjectAbsent:
            return turn.record  # nobody was started yet
        batch = turn.view.batch
        return with_reports(
            turn.record,
            reports,
            turn.view.generation.members,
            most_batch=batch.most if batch else None,
            capacity=_worker_capacity(turn.object),
        )

    # -- decide -----------------------------------------------------------------

    def _capacity(self, cluster: Cluster, turns: Turns) -> tuple[Node, ...]:
        """GPUs to give away; pods of jobs that are not decided on count as foreign."""
        uids = [each.object["metadata"]["uid"] for each in turns.values()]
        ours = {pod["metadata"]["uid"] for pod in cluster.pods_of(uids)}
        return capacity(cluster.nodes, cluster.pods, self._settings.resource, ours)

    def _decide_about(self, turns: Turns, nodes: Sequence[Node], at_s: float) -> None:
        """Ask the policy when it is time to, when a job could start, or when GPUs were lost."""
        asked = [each.record for each in turns.values() if _is_to_decide(each)]
        gpus, given = sum(node.gpus for node in nodes), sum(each.job.workers for each in asked)
        is_round = self._decide.is_due(at_s) or given > gpus
        waiting = [each.name for each in asked if not each.job.workers]
        if not asked or not (is_round or (waiting and self._asked_about != (gpus, given, waiting))):
            return
        if is_round:
            changes = self._decider.ask("decide", asked, nodes, at_s)
        else:
            changes = self._decider.ask("admit", asked, nodes, at_s)
        self._metrics.decided("decide" if is_round else "admit")
        for change in changes:
            self._take(turns[change.name], change)
        after = [change.after for change in changes]
        self._asked_about = (
            gpus,
            sum(each.job.workers for each in after),
            [each.name for each in asked if not turns[each.name].record.job.workers],
        )

    def _take(self, turn: JobTurn, change: JobChange) -> None:
        turn.record = change.after
        if not change.rescales and not change.sets_batch:
            return
        kind = change.change.value if change.rescales else "batch"
        self._metrics.changed(kind)
        job = change.after.job
        text = f"{change.share.reason} ({job.workers} workers, batch {job.batch})"
        is_warning = change.change is Change.SUSPENDED
        self._writer.explain(turn.object, kind.capitalize(), text, is_warning=is_warning)


def _is_to_decide(turn: JobTurn) -> bool:
    return turn.record.is_active and turn.may_be_decided_on


def _known_record(status: Object) -> JobRecord | None:
    text = status.get("record")
    return record_of(json.loads(text)) if text else None


def _number_arrivals(turns: Iterable[JobTurn]) -> None:
    """Give jobs, which come oldest first, numbers in the order of their arrival.

    The second of their creation, or the next number that is free: nobody's changes when another
    job comes or goes.
    """
    last = -1
    for turn in turns:
        last = max(last + 1, int(created_s(turn.object)))
        turn.record = replace(turn.record, job=replace(turn.record.job, arrival=last))


def _age(job: Object) -> tuple[float, str]:
    return created_s(job), job["metadata"]["uid"]


def _unfit(record: JobRecord, nodes: Iterable[Node]) -> str:
    """Why a waiting job cannot run on what there is now; empty if it can."""
    if record.job.workers or not record.is_active:
        return ""
    try:
        check_fits(record.name, record.job.request, sum(node.gpus for node in nodes))
    except ConfigError as problem:
        return str(problem)
    return ""


def _worker_capacity(job: Object) -> WorkerCapacity:
    """What a worker on a CPU may use: its container's limits."""
    limits = job["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
    memory = int(amount(limits["memory"])) if "memory" in limits else None
    return WorkerCapacity(float(amount(limits.get("cpu", 1))) or 1.0, memory)
