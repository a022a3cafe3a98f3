"""Names by which the operator, workers and manifests know the same things."""

from __future__ import annotations

GROUP, VERSION, KIND, PLURAL = "elastic.garfield", "v1alpha1", "ElasticJob", "elasticjobs"
API_VERSION = f"{GROUP}/{VERSION}"

JOB_LABEL = f"{GROUP}/job"
"""On everything that the operator makes for a job; its value is the job's name."""

GPU = "nvidia.com/gpu"
"""The resource of which each worker gets one, unless configured otherwise."""

BATCH_DIRECTORY = "/run/garfield/batch"
"""Where a worker finds the batch size: the job's ConfigMap as a volume."""


def jobs_path(namespace: str | None = None) -> str:
    """The path of all jobs, or those of one namespace."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{API_VERSION}/{inside}{PLURAL}"


def core_path(kind: str, namespace: str | None = None) -> str:
    """The path of pods, nodes, configmaps and the like."""
    return f"/api/v1/namespaces/{namespace}/{kind}" if namespace else f"/api/v1/{kind}"


def rbac_path(kind: str, namespace: str) -> str:
    """The path of roles or rolebindings."""
    return f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kind}"


def batch_map(job: str) -> str:
    """The ConfigMap that tells a job's workers their batch size."""
    return f"{job}-batch"


def reports_map(job: str) -> str:
    """The ConfigMap that a job's workers write their measurements to, a key each."""
    return f"{job}-reports"


def worker_account(job: str) -> str:
    """The ServiceAccount, Role and RoleBinding of a job's workers."""
    return f"{job}-worker"
