"""What kopf does for us: it watches, it serves the webhook, and it answers probes.

Handlers decide nothing about jobs: they tell the loop that something has happened, and the loop
looks at everything anew. The one that validates is asked by the API server and only looks at the
spec that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from garfield.core.errors import ConfigError, MissingDependency
from garfield.elastic.kubernetes.access import Access
from garfield.elastic.kubernetes.naming import GROUP, PLURAL, VERSION
from garfield.elastic.operator.specification import request_of
from garfield.elastic.operator.webhook import HANDLER

try:
    import kopf
except ImportError:
    raise MissingDependency(
        "The operator needs kopf, which is not installed. Install it with: "
        "pip install 'garfield-ml[elastic-kubernetes]'"
    ) from None


def registry(access: Access, wake: Callable[[], None], *, validates: bool) -> kopf.OperatorRegistry:
    """All handlers of one operator; `wake` tells its loop that something has happened."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server,
            ca_data=access.authority.encode() if access.authority else None,
            token=access.bearer(),
            scheme="Bearer" if access.bearer() else None,
            certificate_data=access.certificate.encode() if access.certificate else None,
            private_key_data=access.key.encode() if access.key else None,
            default_namespace=access.namespace,
        )

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    @kopf.on.event("", "v1", "pods", registry=handlers)
    def something_happened(**_: Any) -> None:
        wake()

    seen: dict[str, Any] = {}

    @kopf.on.event("", "v1", "nodes", registry=handlers)
    def a_node_changed(name: str, body: Mapping[str, Any], **_: Any) -> None:
        # a node beats its heart every few seconds, which changes nothing for us
        if seen.get(name) != (now := _matters_of(body)):
            seen[name] = now
            wake()

    if validates:  # kopf refuses to run with a handler that nobody can reach
        kopf.on.validate(GROUP, VERSION, PLURAL, id=HANDLER, registry=handlers)(_validate)
    return handlers


def settings(server: kopf.WebhookServer | None) -> kopf.OperatorSettings:
    """How kopf works here: it writes nothing, and leaves the choice of a leader to us."""
    configured = kopf.OperatorSettings()
    configured.posting.enabled = False
    configured.peering.standalone = True
    if server is not None:
        configured.admission.server = server
    return configured


def _validate(spec: Mapping[str, Any], **_: Any) -> None:
    try:
        request_of(spec)
    except ConfigError as problem:
        raise kopf.AdmissionError(str(problem), code=422) from None


def _matters_of(node: Mapping[str, Any]) -> tuple[Any, ...]:
    status = node.get("status") or {}
    ready = [each.get("status") for each in status.get("conditions", []) if each["type"] == "Ready"]
    allocatable = dict(status.get("allocatable") or {})
    return ready, allocatable, (node.get("spec") or {}).get("unschedulable"), "metadata" in node
