"""Which job a worker in a pod belongs to: what the operator tells it, and how it is understood.

`GARFIELD_ELASTIC_JOB` is kubernetes://NAMESPACE/NAME there, and `GARFIELD_ELASTIC_HOST` the pod's
address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from garfield.core.errors import ConfigError

if TYPE_CHECKING:
    from garfield.elastic.job.on_kubernetes import KubernetesCoordination

HOST = "GARFIELD_ELASTIC_HOST"
_SCHEME = "kubernetes://"


def job_address(job: Mapping[str, Any]) -> str:
    """What to tell workers of an ElasticJob."""
    return f"{_SCHEME}{job['metadata']['namespace']}/{job['metadata']['name']}"


def is_in_pod(address: str) -> bool:
    """Whether a job's address is one of Kubernetes."""
    return address.startswith(_SCHEME)


def open_in_pod(address: str, environment: Mapping[str, str]) -> KubernetesCoordination:
    """The agreement of this pod's job; ConfigError for what is no pod of a job."""
    from garfield.elastic.job.on_kubernetes import KubernetesCoordination
    from garfield.elastic.kubernetes.access import of_this_pod
    from garfield.elastic.kubernetes.client import ApiServer

    namespace, _, name = address.removeprefix(_SCHEME).partition("/")
    if not namespace or not name:
        raise ConfigError(f"{address} names no job. It must be {_SCHEME}NAMESPACE/NAME.")
    if not environment.get(HOST):
        raise ConfigError(f"{HOST} is not set. Set it to the pod's address.")
    api = ApiServer(of_this_pod(environment))
    coordination = KubernetesCoordination(api, namespace, name, host=environment[HOST])
    coordination.check()
    return coordination
