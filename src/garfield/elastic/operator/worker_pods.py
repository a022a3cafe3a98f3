"""What is seen of a job's pods: who lives, who has ended and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from garfield.elastic.kubernetes.client import Object
from garfield.elastic.operator.quantities import seconds_of

_OUT_OF_MEMORY = "OOMKilled"
"""What a kubelet says of a container that the kernel killed for its memory."""


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
    out_of_memory: bool = False
    """Its node killed it, as it took more memory than its container may."""

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
        why = f"{name}: {_ending(status)}"
        return WorkerPod(name, PodState.FAILED, node, why, _was_out_of_memory(status))
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
    for ended in _terminated(status):
        return f"exit code {ended.get('exitCode')}, {ended.get('reason', 'Error')}"
    return str(status.get("reason") or status.get("message") or "failed")


def _was_out_of_memory(status: Object) -> bool:
    return any(ended.get("reason") == _OUT_OF_MEMORY for ended in _terminated(status))


def _terminated(status: Object) -> list[Object]:
    states = [each.get("state", {}) for each in status.get("containerStatuses", [])]
    return [state["terminated"] for state in states if state.get("terminated")]


def _waiting_for(status: Object) -> str:
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return str(waiting.get("reason"))
    for condition in status.get("conditions", []):
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return "no reason was told"
