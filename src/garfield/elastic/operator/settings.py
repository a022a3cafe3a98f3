"""The settings of an operator, each documented: flags of `garfield elastic operate`."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.elastic.control.periods import Periods
from garfield.elastic.kubernetes.naming import GPU
from garfield.elastic.policy.policy import parse


@dataclass(frozen=True)
class Election:
    """Which of several operators leads."""

    lease_name: str = "garfield-elastic-operator"
    """The Lease that one operator holds."""
    lease_namespace: str | None = None
    """Where the Lease and the webhook's certificate are kept. (the operator's own namespace)"""
    lease_s: Annotated[float, Within(1)] = 15.0
    """Seconds after which another operator takes over from one that is silent."""
    identity: str | None = None
    """Who this operator is in the Lease. (the host's name and a number)"""

    @property
    def who(self) -> str:
        """The identity, or one that no other process has."""
        return self.identity or f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True)
class Endpoints:
    """What the operator answers to."""

    listen: str = "0.0.0.0"
    """The address to listen on, for all of them."""
    metrics_port: Annotated[int, Within(0, 65535)] = 8000
    """The port for Prometheus; 0 for none."""
    health_port: Annotated[int, Within(0, 65535)] = 8080
    """The port for liveness probes; 0 for none."""
    webhook_port: Annotated[int, Within(0, 65535)] = 9443
    """The port at which the API server asks whether a job may be; 0 for no webhook."""
    webhook_service: str = "garfield-elastic-operator"
    """The Service through which the API server reaches the webhook."""
    webhook_host: str | None = None
    """The host at which the API server reaches it, if not through a Service."""


@dataclass(frozen=True)
class OperatorSettings:
    """How one operator works."""

    policy: str = "era"
    """Who gets how many workers: era, era-marginal, static, autoscaler, afs-p."""
    resource: str = GPU
    """What each worker gets one of."""
    dry_run: bool = False
    """Decide and tell, and change nothing."""
    kubeconfig: str | None = None
    """How to reach the cluster. (as the pod's service account, or ~/.kube/config)"""
    settle_s: Annotated[float, Within(0)] = 1.0
    """Seconds to wait after a change for others that belong to it."""
    start_timeout_s: Annotated[float, Within(0, above=True)] = 600.0
    """Seconds after which a pod that did not start counts as failed."""
    node_grace_s: Annotated[float, Within(0)] = 10.0
    """Seconds for which a node may be not ready before it counts as lost: after an outage of the
    API server many seem so for a moment."""
    retries: Annotated[int, Within(0)] = 2
    """How often a job that fails without coming farther is started again."""
    periods: Periods = field(default_factory=Periods)
    election: Election = field(default_factory=Election)
    endpoints: Endpoints = field(default_factory=Endpoints)

    def __post_init__(self) -> None:
        check_numbers(self)
        parse(self.policy)  # refuses an unknown one, with the nearest
