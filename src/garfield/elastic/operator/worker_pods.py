"""What is seen of a job's pods: who lives, who has ended and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from garfield.elastic.kubernetes.client import Object
from garfield.elastic.operator.quantities import seconds_of


class PodState(Enum):
    """Whether a worker trains, or is about to."""

    LIVING = "living"
    LEAVING = "leaving"
    """It was told to end, and has not yet."""
    LOST = "lost"
    """Its node does not answer: whether it lives, nobody knows."""
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True)
class WorkerPod:
    """One worker of a job."""

    name: str
    state: PodState
    node: str = ""
    ending: str = ""
    """How it ended, for people, if nobody had asked it to."""

    @property
    def is_living(self) -> bool:
        return self.state is PodState.LIVING

    @property
    def may_still_run(self) -> bool:
        """Whether its process cannot be known to have ended."""
        return self.state in (PodState.LIVING, PodState.LEAVING, PodState.LOST)


def observed(
    pods: Iterable[Object], ready_nodes: Collection[str], at_s: float, start_timeout_s: float
) -> dict[str, WorkerPod]:
    """A job's pods by name. One that does not start within the time-out has failed."""
    return {
        pod["metadata"]["name"]: _observed(pod, ready_nodes, at_s, start_timeout_s) for pod in pods
    }


def _observed(
    pod: Object, ready_nodes: Collection[str], at_s: float, start_timeout_s: float
) -> WorkerPod:
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return WorkerPod(name, PodState.ENDED, node)
    if phase == "Failed":
        return WorkerPod(name, PodState.FAILED, node, f"{name}: {_ending(status)}")
    if node and node not in ready_nodes:
        return WorkerPod(name, PodState.LOST, node, f"{name}: its node {node} does not answer")
    if "deletionTimestamp" in pod["metadata"]:
        return WorkerPod(name, PodState.LEAVING, node)
    if phase == "Pending" and at_s - created_s(pod) > start_timeout_s:
        why = f"{name}: did not start within {start_timeout_s:g} s ({_waiting_for(status)})"
        return WorkerPod(name, PodState.FAILED, node, why)
    return WorkerPod(name, PodState.LIVING, node)


def created_s(thing: Object) -> float:
    """When an object was made, in seconds since 1970."""
    return seconds_of(thing["metadata"]["creationTimestamp"])


def _ending(status: Object) -> str:
    for container in status.get("containerStatuses", []):
        ended = container.get("state", {}).get("terminated")
        if ended:
            return f"exit code {ended.get('exitCode')}, {ended.get('reason', 'Error')}"
    return str(status.get("reason") or status.get("message") or "failed")


def _waiting_for(status: Object) -> str:
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return str(waiting.get("reason"))
    for condition in status.get("conditions", []):
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return "no reason was told"
