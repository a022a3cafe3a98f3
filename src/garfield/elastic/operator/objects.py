"""What the operator makes for a job: pods, two ConfigMaps, and rights for the job's workers only.

All of it is owned by the ElasticJob, so that Kubernetes removes it with the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from garfield.core.files import as_json
from garfield.elastic.job.coordination import BatchSize
from garfield.elastic.job.environment import JOB, MEMBER
from garfield.elastic.job.in_pod import HOST, job_address
from garfield.elastic.job.on_kubernetes import BATCH_FILE, batch_as_json
from garfield.elastic.kubernetes.client import Object
from garfield.elastic.kubernetes.naming import (
    API_VERSION,
    BATCH_DIRECTORY,
    GROUP,
    JOB_LABEL,
    KIND,
    PLURAL,
    batch_map,
    core_path,
    rbac_path,
    reports_map,
    worker_account,
)

_BATCH_VOLUME = "garfield-batch"
_RBAC = "rbac.authorization.k8s.io"


def worker_pod(job: Object, member: str, resource: str) -> Object:
    """The pod of one worker: the user's template, one GPU, and what it must know of its job."""
    template = deepcopy(job["spec"]["template"])
    spec = template["spec"]
    spec["restartPolicy"] = "Never"  # who is started anew is another worker
    spec.setdefault("serviceAccountName", worker_account(job["metadata"]["name"]))
    spec.setdefault("volumes", []).append(
        {"name": _BATCH_VOLUME, "configMap": {"name": batch_map(job["metadata"]["name"])}}
    )
    trains = spec["containers"][0]
    trains.setdefault("volumeMounts", []).append(
        {"name": _BATCH_VOLUME, "mountPath": BATCH_DIRECTORY, "readOnly": True}
    )
    trains.setdefault("env", []).extend(
        [
            {"name": JOB, "value": job_address(job)},
            {"name": MEMBER, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": HOST, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
    )
    for kind in ("requests", "limits"):
        trains.setdefault("resources", {}).setdefault(kind, {})[resource] = "1"
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_owned(job, member),
            "labels": {**(metadata.get("labels") or {}), JOB_LABEL: job["metadata"]["name"]},
            "annotations": metadata.get("annotations") or {},
        },
        "spec": spec,
    }


def companions(job: Object, first_batch: BatchSize) -> list[tuple[str, Object]]:
    """What has to be there before the first pod, each with the path to make it at."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    account = worker_account(name)
    subject = job["spec"]["template"]["spec"].get("serviceAccountName", account)
    rules = [
        {"apiGroups": [GROUP], "resources": [PLURAL], "resourceNames": [name], "verbs": ["get"]},
        {
            "apiGroups": [GROUP],
            "resources": [f"{PLURAL}/status"],
            "resourceNames": [name],
            "verbs": ["update"],
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [reports_map(name)],
            "verbs": ["get", "patch"],
        },
    ]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": account}
    subjects = [{"kind": "ServiceAccount", "name": subject, "namespace": namespace}]
    made = {
        core_path("configmaps", namespace): [
            _object(job, "v1", "ConfigMap", reports_map(name)),
            _object(job, "v1", "ConfigMap", batch_map(name), data=batch_data(first_batch)),
        ],
        core_path("serviceaccounts", namespace): [_object(job, "v1", "ServiceAccount", account)],
        rbac_path("roles", namespace): [
            _object(job, f"{_RBAC}/v1", "Role", account, rules=rules),
        ],
        rbac_path("rolebindings", namespace): [
            _object(
                job, f"{_RBAC}/v1", "RoleBinding", account, roleRef=reference, subjects=subjects
            ),
        ],
    }
    return [(path, each) for path, objects in made.items() for each in objects]


def batch_data(batch: BatchSize) -> dict[str, str]:
    """The content of the ConfigMap that tells workers their batch size."""
    return {BATCH_FILE: as_json(batch_as_json(batch))}


def _object(job: Object, version: str, kind: str, name: str, **content: Any) -> Object:
    metadata = {**_owned(job, name), "labels": {JOB_LABEL: job["metadata"]["name"]}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def _owned(job: Object, name: str) -> Mapping[str, Any]:
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner],
    }
