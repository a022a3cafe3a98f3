"""A job's status as users and their tools read it, and the events beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from garfield.core.files import as_json
from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.kubernetes.client import Object
from garfield.elastic.kubernetes.naming import API_VERSION, JOB_LABEL, KIND
from garfield.elastic.operator.intent import Intent

ACCEPTED, RUNNING, COMPLETE, FAILED = "Accepted", "Running", "Complete", "Failed"
PHASES = {
    Phase.WAITING: "Waiting",
    Phase.RUNNING: "Running",
    Phase.SUSPENDED: "Suspended",
    Phase.FINISHED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.CANCELLED: "Failed",
}
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True)
class Condition:
    """One thing that is so, or is not."""

    kind: str
    holds: bool
    reason: str
    """One word, for programs."""
    message: str = ""


def status_of(
    job: Object, record: JobRecord, intent: Intent, workers: int, conditions: Sequence[Condition]
) -> dict[str, Any]:
    """The operator's part of a status; `workers` is how many of them run."""
    return {
        "phase": PHASES[record.phase],
        "workers": workers,
        "batch": record.job.batch,
        "step": record.farthest_step,
        "reason": record.why or PHASES[record.phase],
        "selector": f"{JOB_LABEL}={job['metadata']['name']}",
        "observedGeneration": job["metadata"].get("generation", 0),
        "conditions": merged(job, conditions),
        "record": as_json(record),
        "intent": {"members": list(intent.members), "after": intent.after, "next": intent.next},
    }


def conditions_of(record: JobRecord, fits: str) -> list[Condition]:
    """What holds of an accepted job; `fits` says why it cannot run here, if so."""
    phase = record.phase
    running = Condition(RUNNING, phase is Phase.RUNNING, PHASES[phase], fits or record.why)
    return [
        Condition(ACCEPTED, True, "Valid"),
        running,
        Condition(COMPLETE, phase is Phase.FINISHED, PHASES[phase]),
        Condition(FAILED, phase in (Phase.FAILED, Phase.CANCELLED), PHASES[phase],
                  record.why if phase is Phase.FAILED else ""),
    ]  # fmt: skip


def merged(job: Object, conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """Conditions as Kubernetes wants them: a time of transition stays while nothing changes."""
    before = {each["type"]: each for each in (job.get("status") or {}).get("conditions", [])}
    found = dict(before)
    for condition in conditions:
        status = "True" if condition.holds else "False"
        old = before.get(condition.kind, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        found[condition.kind] = {
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "lastTransitionTime": since or now(),
            "observedGeneration": job["metadata"].get("generation", 0),
        }
        if condition.message:
            found[condition.kind]["message"] = condition.message[:_LONGEST_MESSAGE]
    return list(found.values())


def event_about(
    job: Object, reason: str, message: str, *, by: str, is_warning: bool = False
) -> Object:
    """An event that `kubectl describe` shows with the job."""
    metadata, moment = job["metadata"], now()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": by},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def differs(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether writing would change anything."""
    return any(status.get(name) != value for name, value in wanted.items())


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
