"""All that the operator writes about one job: its status, its pods, its generations, its events.

Everything is written so that it can be written again. Before each write the operator makes sure
that it leads; a status is written only if no other operator has written one since it was read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from garfield.core.errors import ClusterError, ObjectAbsent, WriteConflict
from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.job.coordination import BatchSize, JobView
from garfield.elastic.job.on_kubernetes import (
    BATCH_FILE,
    KubernetesCoordination,
    batch_from_json,
    later_batch,
)
from garfield.elastic.kubernetes.client import ApiServer, Object
from garfield.elastic.kubernetes.naming import batch_map, core_path, jobs_path, reports_map
from garfield.elastic.operator.intent import Intent, may_start, revised, steps
from garfield.elastic.operator.objects import batch_data, companions, worker_pod
from garfield.elastic.operator.specification import full_name
from garfield.elastic.operator.status import (
    ACCEPTED,
    Condition,
    conditions_of,
    differs,
    event_about,
    merged,
    status_of,
)
from garfield.elastic.operator.worker_pods import WorkerPod

_log = logging.getLogger("garfield.elastic.operator")
_COMPONENT = "garfield-elastic-operator"


class Overtaken(Exception):  # noqa: N818
    """Another operator has written what this one was about to: this turn ends. No user meets it."""


@dataclass
class JobTurn:
    """One job during one turn."""

    object: Object
    record: JobRecord
    intent: Intent
    view: JobView
    pods: dict[str, WorkerPod]

    @property
    def may_be_decided_on(self) -> bool:
        """Not while workers of before may still run: a start would be vouching for their end."""
        return bool(self.record.job.workers) or may_start(self.view, self.pods)


class JobWriter:
    """Writes for one operator."""

    def __init__(self, api: ApiServer, resource: str, may_write: Callable[[], bool]) -> None:
        """`may_write` raises Overtaken where another leads, and is False in a dry run."""
        self._api, self._resource, self._may_write = api, resource, may_write

    def refuse(self, job: Object, why: str) -> None:
        """Say in a condition what the webhook would have said."""
        refused = Condition(ACCEPTED, False, "Invalid", why)
        status = {"conditions": merged(job, [refused]), "reason": why}
        if self._may_write() and differs(job.get("status") or {}, status):
            self._api.patch(f"{_path(job)}/status", {"status": status})
            self.explain(job, "Invalid", why, is_warning=True)

    def explain(self, job: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Tell by an event; nothing depends on it."""
        if not self._may_write():
            return
        event = event_about(job, reason, message, by=_COMPONENT, is_warning=is_warning)
        try:
            self._api.create(core_path("events", job["metadata"]["namespace"]), event)
        except ClusterError as problem:
            _log.warning("%s", problem)

    def converge(self, turn: JobTurn, unfit: str, cordoned: Collection[str], at_s: float) -> None:
        """Bring a job to what its record says; `unfit` is why it cannot run here, if so."""
        if not self._may_write():
            return
        record, intent = turn.record, turn.intent
        has_finished = record.ending is Phase.FINISHED  # its last workers end by themselves
        if not has_finished:
            intent = revised(
                intent, turn.view, turn.pods, record.job.workers,
                prefix=turn.object["metadata"]["name"], avoid=cordoned,
            )  # fmt: skip
        running = sum(pod.is_living for pod in turn.pods.values())
        conditions = conditions_of(record, unfit)
        status = status_of(turn.object, record, intent, running, conditions)
        if differs(turn.object.get("status") or {}, status):
            self._write_status(turn.object, status)
        if not has_finished:
            self._act(turn, intent, at_s)

    def _act(self, turn: JobTurn, intent: Intent, at_s: float) -> None:
        todo = steps(intent, turn.view, turn.pods)
        self._tell_limit(turn, at_s)
        if todo.create:
            self._create(turn, todo.create, at_s)
        if turn.record.job.workers:
            self._tell_batch(turn, at_s)
        if todo.propose is not None and turn.record.is_active:
            self._propose(turn, todo.propose)
        for name in todo.delete:
            self._delete(turn.object, name)

    def _write_status(self, job: Object, status: Object) -> None:
        """Patch the operator's part, provided that no other operator has since it was read."""
        before = (job.get("status") or {}).get("record")
        version = job["metadata"]["resourceVersion"]
        while True:
            body = {"metadata": {"resourceVersion": version}, "status": status}
            try:
                self._api.patch(f"{_path(job)}/status", body)
                return
            except WriteConflict:  # workers have agreed on something meanwhile, which is theirs
                fresh = self._api.get(_path(job))
                if (fresh.get("status") or {}).get("record") != before:
                    raise Overtaken(f"{full_name(job)} was written by another.") from None
                version = fresh["metadata"]["resourceVersion"]

    def _create(self, turn: JobTurn, members: Collection[str], at_s: float) -> None:
        self._create_companions(turn, at_s)
        for member in members:
            pods = core_path("pods", turn.object["metadata"]["namespace"])
            self._create_once(pods, worker_pod(turn.object, member, self._resource))

    def _create_companions(self, turn: JobTurn, at_s: float) -> None:
        first = turn.view.batch or BatchSize(turn.record.job.batch, int(at_s * 1e6))
        for path, body in companions(turn.object, first):
            self._create_once(path, body)

    def _create_once(self, path: str, body: Object) -> None:
        try:
            self._api.create(path, body)
        except WriteConflict:
            return  # it was made before

    def _tell_limit(self, turn: JobTurn, at_s: float) -> None:
        """Agree on the largest batch that fits memory before anybody starts: a pod may see the
        side channel a minute later, and would be killed again."""
        job, known = turn.record.job, turn.view.batch
        if job.oom_batch is None:
            return
        most = max(1, job.oom_batch // 2)
        if known is not None and known.most is not None and known.most <= most:
            return
        since_us = max(int(at_s * 1e6), known.since_us + 1 if known is not None else 0)
        self._agreement(turn.object).set_batch(BatchSize(job.batch, since_us, most))

    def _tell_batch(self, turn: JobTurn, at_s: float) -> None:
        """Write the side channel if it does not say what was decided."""
        path = self._config_map(turn.object, batch_map)
        try:
            content = self._api.get(path).get("data") or {}
        except ObjectAbsent:  # somebody has deleted it
            self._create_companions(turn, at_s)
            return
        told = batch_from_json(content.get(BATCH_FILE, ""))
        known = turn.view.batch if told is None else later_batch(turn.view.batch, told)
        wanted = turn.record.job.batch
        if known is not None and known.allowed == wanted:
            return
        since_us, most = int(at_s * 1e6), None
        if known is not None:  # clocks differ: ours may be behind a worker's
            since_us, most = max(since_us, known.since_us + 1), known.most
        self._api.patch(path, {"data": batch_data(BatchSize(wanted, since_us, most))})

    def _propose(self, turn: JobTurn, members: tuple[str, ...]) -> None:
        number = turn.view.generation.number
        if not self._agreement(turn.object).propose(members, after=number):
            _log.info("%s has moved on from generation %d.", full_name(turn.object), number)

    def _agreement(self, job: Object) -> KubernetesCoordination:
        metadata = job["metadata"]
        return KubernetesCoordination(
            self._api, metadata["namespace"], metadata["name"], batch_directory=None, least_s=0.0
        )

    def _delete(self, job: Object, name: str) -> None:
        self._api.delete(f"{core_path('pods', job['metadata']['namespace'])}/{name}")
        try:
            self._api.patch(self._config_map(job, reports_map), {"data": {name: None}})
        except ObjectAbsent:
            return

    def _config_map(self, job: Object, naming: Callable[[str], str]) -> str:
        metadata = job["metadata"]
        return f"{core_path('configmaps', metadata['namespace'])}/{naming(metadata['name'])}"


def _path(job: Object) -> str:
    return f"{jobs_path(job['metadata']['namespace'])}/{job['metadata']['name']}"
