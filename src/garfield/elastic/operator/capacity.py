"""What there is to give: ready, uncordoned nodes' GPUs, minus what foreign pods have requested."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from fractions import Fraction
from math import floor

from garfield.elastic.kubernetes.client import Object
from garfield.elastic.operator.quantities import amount, seconds_of
from garfield.elastic.policy.snapshot import Node

_ENDED = ("Succeeded", "Failed")
_KIND_LABEL = "nvidia.com/gpu.product"


def capacity(
    nodes: Iterable[Object], pods: Iterable[Object], resource: str, ours: Collection[str]
) -> tuple[Node, ...]:
    """What jobs may have of the resource on each of these nodes, which are ready.

    `ours` are uids of pods that jobs have.
    """
    taken: dict[str, Fraction] = defaultdict(Fraction)
    for pod in pods:
        has_ended = pod.get("status", {}).get("phase") in _ENDED
        if pod["metadata"]["uid"] not in ours and not has_ended:
            taken[pod["spec"].get("nodeName", "")] += requested(pod, resource)
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        allocatable = amount(node.get("status", {}).get("allocatable", {}).get(resource, 0))
        if allocatable and not node["spec"].get("unschedulable"):
            kind = node["metadata"].get("labels", {}).get(_KIND_LABEL, "")
            found.append(Node(name, max(0, floor(allocatable - taken[name])), kind))
    return tuple(sorted(found, key=lambda each: each.name))


def silent_s(node: Object, at_s: float) -> float:
    """How long a node has not been ready; 0 if it is, and without end if nobody says since when."""
    conditions = node.get("status", {}).get("conditions", [])
    ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
    if ready.get("status") == "True":
        return 0.0
    since = ready.get("lastTransitionTime")
    return max(at_s - seconds_of(since), 1e-9) if since else float("inf")


def requested(pod: Object, resource: str) -> Fraction:
    """What a pod has reserved: of all containers at once, or of one that comes before them."""
    spec = pod["spec"]
    together = sum((_of(each, resource) for each in spec["containers"]), Fraction(0))
    before = (_of(each, resource) for each in spec.get("initContainers", []))
    return max(together, max(before, default=Fraction(0)))


def _of(container: Object, resource: str) -> Fraction:
    told = container.get("resources", {})
    # who names a limit only has requested that much
    return amount(told.get("requests", {}).get(resource, told.get("limits", {}).get(resource, 0)))
