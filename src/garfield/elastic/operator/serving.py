"""An operator, from its settings to its end: `garfield elastic operate`."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

import kopf

from garfield.core.errors import ConfigError, ObjectAbsent
from garfield.core.events import Sink
from garfield.elastic.kubernetes.access import find_access
from garfield.elastic.kubernetes.client import ApiServer
from garfield.elastic.kubernetes.naming import jobs_path
from garfield.elastic.operator import handlers, webhook
from garfield.elastic.operator.leadership import Leadership
from garfield.elastic.operator.loop import Loop
from garfield.elastic.operator.metrics import Metrics
from garfield.elastic.operator.reconciler import Reconciler
from garfield.elastic.operator.settings import OperatorSettings

_log = logging.getLogger("garfield.elastic.operator")


def operate(settings: OperatorSettings, tell: Sink) -> None:
    """Be an operator until SIGTERM or Ctrl-C; `tell` takes decisions and what else is of note."""
    access = find_access(settings.kubeconfig)
    api = ApiServer(access)
    namespace = settings.election.lease_namespace or access.namespace
    metrics = Metrics()
    with ExitStack() as stack:
        stack.callback(api.close)
        _check(api)
        server = None
        if settings.endpoints.webhook_port and not settings.dry_run:
            server = _webhook_server(api, settings, namespace, stack)
        if settings.endpoints.metrics_port:
            listen, port = settings.endpoints.listen, settings.endpoints.metrics_port
            stack.callback(metrics.serve(listen, port).shutdown)
        leadership = None
        if not settings.dry_run:
            election = settings.election
            leadership = stack.enter_context(
                Leadership(api, namespace, election.lease_name, election.who, election.lease_s)
            )

        def make(at_s: float) -> Reconciler:
            leads = (lambda: leadership.is_leader) if leadership else (lambda: True)
            return Reconciler(api, settings, tell, metrics, at_s, leads)

        loop = stack.enter_context(Loop(make, leadership, metrics, settings.settle_s))
        tell({"event": "operating", "server": access.server, "policy": settings.policy})
        health = settings.endpoints.health_port
        asyncio.run(
            kopf.operator(
                registry=handlers.registry(access, loop.wake, validates=server is not None),
                settings=handlers.settings(server),
                standalone=True,
                clusterwide=True,
                liveness_endpoint=f"http://{settings.endpoints.listen}:{health}/"
                if health
                else None,
            )
        )


def _check(api: ApiServer) -> None:
    """Raise ConfigError where nobody has told the cluster what an ElasticJob is."""
    try:
        api.list(jobs_path())
    except ObjectAbsent:
        raise ConfigError(
            f"{api.access.server} knows no ElasticJobs. Tell it: kubectl apply -k deploy/kubernetes"
        ) from None


def _webhook_server(
    api: ApiServer, settings: OperatorSettings, namespace: str, stack: ExitStack
) -> kopf.WebhookServer:
    endpoints = settings.endpoints
    host = webhook.service_host(endpoints, namespace)
    found = webhook.shared_certificate(api, namespace, host)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="garfield-webhook-")))
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(found.certificate)
    key.touch(mode=0o600)
    key.write_bytes(found.key)
    try:
        webhook.configure(api, endpoints, namespace, endpoints.webhook_port, found.certificate)
    except ObjectAbsent as problem:
        _log.warning("No webhook: %s Jobs are refused by a condition only.", problem)
    return kopf.WebhookServer(
        addr=endpoints.listen, port=endpoints.webhook_port, certfile=certificate, pkeyfile=key
    )
