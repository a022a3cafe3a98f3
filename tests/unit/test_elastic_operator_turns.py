"""What one turn decides for jobs whose statuses say anything at all."""

import json

from garfield.core.errors import ObjectAbsent
from garfield.elastic.kubernetes.naming import GPU, core_path, jobs_path
from garfield.elastic.operator.metrics import Metrics
from garfield.elastic.operator.reconciler import Reconciler
from garfield.elastic.operator.settings import OperatorSettings

AT_S = 1767225600.0
CREATED = "2026-01-01T00:00:00Z"


class Cluster:
    """An API server's lists, for an operator that decides and writes nothing."""

    def __init__(self, *jobs, gpus="4"):
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {GPU: gpus}, "conditions": [ready]}
        node = {"metadata": {"name": "n1"}, "spec": {}, "status": status}
        self._lists = {core_path("nodes"): [node], core_path("pods"): [], jobs_path(): list(jobs)}

    def list(self, path, **_):
        return self._lists[path]

    def get(self, path):
        raise ObjectAbsent(path)


def job(name, spec=None, **status):
    container = {"name": "train", "image": "i"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": CREATED},
        "spec": {"template": {"spec": {"containers": [container]}}, **(spec or {})},
        "status": status,
    }


def decided(cluster):
    """Workers that the first turn would give, by job."""
    told = []
    dry = OperatorSettings(dry_run=True)
    Reconciler(cluster, dry, told.append, Metrics(), AT_S).turn(AT_S)
    return {
        name: share.workers for event in told for name, share in event["decision"].shares.items()
    }


def test_jobs_of_the_same_second_are_told_apart():
    assert decided(Cluster(job("a"), job("b"), job("c"))) == {"ns/a": 2, "ns/b": 2, "ns/c": 0}


def test_a_status_that_its_job_has_damaged_holds_up_no_other_job():
    record = json.dumps({"job": {"name": "ns/b"}})
    damaged = [
        job("a", record="no record"),
        job("b", record=record),
        job("c", agreed={"generation": {"number": 1, "members": ["x"]}, "batch": {"size": 0}}),
        job("d", spec={"workers": {"min": 9, "max": 1}}),
    ]
    assert decided(Cluster(*damaged, job("e"))) == {"ns/e": 2}


def test_a_job_larger_than_the_cluster_holds_up_no_other_job():
    large = job("a", spec={"workers": {"min": 8, "start": 8}})
    assert decided(Cluster(large, job("b"))) == {"ns/a": 0, "ns/b": 2}


def test_nobody_is_given_what_is_not_there():
    assert decided(Cluster(job("a"), gpus="0")) == {"ns/a": 0}
    assert decided(Cluster()) == {}
