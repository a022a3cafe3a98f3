"""The operator on a real control plane: jobs train in pods, whatever happens around them.

One cluster for all tests of this file, two nodes with two GPUs each. The operator runs by its own
account, with the rights of our manifests and no others.
"""

import fcntl
import json
import sys

import httpx
import pytest

from garfield.core.errors import ClusterError
from garfield.elastic.kubernetes.naming import API_VERSION, GPU, KIND, core_path, jobs_path
from tests.command import invoke
from tests.kubernetes_cluster.cluster import MANIFESTS, NAMESPACE, OPERATOR, ROOT, Cluster
from tests.kubernetes_cluster.control_plane import free_port, require_binaries
from tests.kubernetes_cluster.pod_process import memory_group

pytestmark = pytest.mark.heavy

NODES = {"n1": 0.2, "n2": 1.5}  # and how late each tells its pods of a changed ConfigMap


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    require_binaries()
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.install()
        for name, projection_s in NODES.items():
            started.start_node(name, projection_s=projection_s, **{GPU: 2})
        started.ports = {"metrics_port": free_port(), "webhook_port": free_port()}
        yield started


@pytest.fixture
def turn(tmp_path_factory):
    """Lets one test of this file run at a time: each trains with up to four workers."""
    shared = tmp_path_factory.getbasetemp().parent
    with (shared / "operator-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def operator(turn, cluster):
    """The name of the one that leads."""
    return cluster.only_operator(**cluster.ports)


@pytest.fixture
def jobs(cluster, operator, tmp_path):
    """Submits jobs, and deletes them at the end: nothing of them may be left."""
    given = Jobs(cluster, tmp_path)
    yield given
    given.delete_all()


class Jobs:
    def __init__(self, cluster, directory):
        self._cluster, self._directory, self._names = cluster, directory, []

    def submit(self, name, *words, batch=None, limits=None, **workers):
        self._directory.joinpath(name).mkdir()
        self._names.append(name)
        self._cluster.apply(self.described(name, *words, batch=batch, limits=limits, **workers))

    def described(self, name, *words, batch=None, limits=None, **workers):
        script = [sys.executable, "-m", "tests.kubernetes_cluster.train"]
        container = {
            "name": "train",
            "image": "none",
            "command": [*script, str(self._directory / name), *map(str, words)],
            "env": [{"name": "PYTHONPATH", "value": f"{ROOT / 'src'}:{ROOT}"}],
            "resources": {"limits": limits or {}},
        }
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "workers": workers,
                "batch": {"size": 16, "scale": False, **(batch or {})},
                "template": {"spec": {"containers": [container]}},
            },
        }

    def records(self, name):
        """Lines that workers wrote, by pod."""
        found = {}
        for path in self._directory.joinpath(name).glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            found[path.stem] = [json.loads(line) for line in lines if line.endswith("\n")]
        return found

    def step(self, name):
        lines = [line for lines in self.records(name).values() for line in lines]
        return max((line["step"] for line in lines), default=0)

    def wait_for_steps(self, name, more=10):
        goal = self.step(name) + more
        self._cluster.wait(lambda: self.step(name) >= goal, f"{more} more steps of {name}")

    def members(self, name):
        """Members of the newest generation, if it has begun; else none."""
        agreed = self._cluster.status(name).get("agreed", {})
        newest = agreed.get("generation", {"number": 0, "members": []})
        has_begun = newest["number"] and agreed.get("begun") == newest["number"]
        return newest["members"] if has_begun else []

    def wait_for_workers(self, name, count):
        """Until so many train together."""

        def trains():
            return len(self.members(name)) == count

        self._cluster.wait(trains, f"{count} workers of {name}")
        self.wait_for_steps(name, 3)
        return self.members(name)

    def delete_all(self):
        for name in self._names:
            path = f"{jobs_path('default')}/{name}"
            self._cluster.api.delete(path)
        kinds = ("pods", "configmaps", "serviceaccounts")

        def left():
            return [
                each["metadata"]["name"]
                for kind in kinds
                for each in self._cluster.api.list(
                    core_path(kind, "default"), labelSelector="elastic.garfield/job"
                )
            ]

        self._cluster.wait(lambda: not left(), "the end of everything of deleted jobs")


def test_a_job_trains_grows_makes_room_and_finishes(cluster, operator, jobs):
    jobs.submit("a", max=4, start=2, limits={"memory": "8Gi"}, batch={"scale": True, "max": 32})
    jobs.wait_for_workers("a", 4)
    jobs.submit("b", "--epochs", 3, max=1)
    jobs.wait_for_workers("a", 3)
    cluster.wait(lambda: cluster.status("b").get("phase") == "Succeeded", "the end of b")
    assert cluster.condition("b", "Complete")["status"] == "True"
    assert "finished" in cluster.kubectl("logs", "b-0").stdout
    cluster.kubectl("scale", "elasticjob", "a", "--replicas=1")
    jobs.wait_for_workers("a", 1)
    assert "1" in cluster.kubectl("get", "elasticjob", "a").stdout
    told = cluster.kubectl("describe", "elasticjob", "a").stdout
    assert "2 → 4 workers" in told
    assert "4 → 3 workers" in told
    _assert_batches_changed_together(jobs.records("a"))
    assert invoke(["elastic", "replay", cluster.directory / f"{operator}-decisions"]).exit_code == 0
    metrics = httpx.get(f"http://127.0.0.1:{cluster.ports['metrics_port']}/metrics").text
    assert 'garfield_elastic_job_workers{job="default/a"} 1.0' in metrics


def _assert_batches_changed_together(records):
    """Nodes tell their pods at different times; yet all workers of a step have the same batch."""
    by_step = {}
    for lines in records.values():
        for line in lines:
            place = (line["generation"], line["step"])
            by_step.setdefault(place, set()).add(line["batch"])
    assert all(len(batches) == 1 for batches in by_step.values())
    assert {batch for batches in by_step.values() for batch in batches} == {16, 32}


def test_training_goes_on_without_an_operator_and_the_next_one_takes_up(cluster, operator, jobs):
    jobs.submit("a", max=2, start=2)
    first = jobs.wait_for_workers("a", 2)
    before = json.loads(cluster.status("a")["record"])
    cluster.kill(operator)
    jobs.wait_for_steps("a")
    cluster.kubectl("delete", "pod", first[0], "--wait=false")  # the first member, and by hand
    jobs.wait_for_workers("a", 1)
    cluster.only_operator(**cluster.ports)
    members = jobs.wait_for_workers("a", 2)
    assert first[0] not in members
    assert first[1] in members
    after = json.loads(cluster.status("a")["record"])
    assert after["submitted_s"] == before["submitted_s"]
    assert after["job"]["rounds"] > before["job"]["rounds"]


def test_the_api_server_is_restarted_under_all_of_them(cluster, jobs):
    jobs.submit("a", max=2, start=2)
    members = jobs.wait_for_workers("a", 2)
    cluster.plane.kill("kube-apiserver")
    jobs.wait_for_steps("a", 20)
    cluster.plane.start_api_server()
    jobs.wait_for_steps("a")
    assert jobs.members("a") == members
    jobs.submit("b", "--epochs", 2, max=1)
    cluster.wait(lambda: cluster.status("b").get("phase") == "Succeeded", "the end of b")


def test_a_job_goes_on_without_a_node_that_disappears(cluster, jobs):
    jobs.submit("a", max=4, start=4)
    jobs.wait_for_workers("a", 4)
    cluster.kill("n2")
    members = jobs.wait_for_workers("a", 2)
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods("a")}
    assert {nodes[member] for member in members} == {"n1"}
    assert "its node n2 does not answer" in cluster.kubectl("describe", "elasticjob", "a").stdout
    cluster.start_node("n2", **{GPU: 2})
    jobs.wait_for_workers("a", 4)


def test_foreign_pods_and_cordoned_nodes_leave_less_to_give(cluster, jobs):
    jobs.submit("a", max=4, start=4)
    jobs.wait_for_workers("a", 4)
    cluster.kubectl("cordon", "n1")
    try:
        members = jobs.wait_for_workers("a", 2)
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods("a")}
        assert {nodes[member] for member in members} == {"n2"}
    finally:
        cluster.kubectl("uncordon", "n1")
    foreign = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign", "namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": "c", "image": "none", "command": ["sleep", "1000"],
                 "resources": {"limits": {GPU: "1"}}}
            ],
        },
    }  # fmt: skip
    cluster.apply(foreign)
    try:
        jobs.wait_for_workers("a", 3)
    finally:
        cluster.kubectl("delete", "pod", "foreign", "--wait=false")


def test_a_job_that_is_suspended_goes_on_from_where_it_was(cluster, jobs):
    for name in ("a", "b"):
        jobs.submit(name, min=2, start=2, max=2)
        jobs.wait_for_workers(name, 2)
    cluster.kubectl("cordon", "n1")
    try:
        cluster.wait(lambda: cluster.status("b").get("phase") == "Suspended", "b suspended")
        cluster.wait(lambda: not cluster.pods("b"), "the end of b's workers")
        jobs.wait_for_steps("a")
        last, first_workers = jobs.step("b"), set(jobs.records("b"))
    finally:
        cluster.kubectl("uncordon", "n1")
    jobs.wait_for_workers("b", 2)
    later = {name: lines for name, lines in jobs.records("b").items() if name not in first_workers}
    assert [lines[0]["step"] for lines in later.values()] == [last + 1, last + 1]


def test_a_script_that_fails_at_once_is_given_up_and_says_why(cluster, jobs):
    jobs.submit("broken", "--no-such-flag", max=1)
    cluster.wait(lambda: cluster.status("broken").get("phase") == "Failed", "the end of broken")
    message = cluster.condition("broken", "Failed")["message"]
    assert "failed 3 times" in message
    assert "exit code 2" in message
    last = cluster.pods("broken")[-1]["metadata"]["name"]
    assert "--no-such-flag" in cluster.kubectl("logs", last).stdout


def test_a_worker_killed_for_its_memory_halves_the_batch_for_good(cluster, jobs):
    group = memory_group("probe", 2**30)
    if group is None:
        pytest.skip("this machine allows no control groups for memory")
    group.close()
    needs = ("--held-mb-per-sample", 40)
    jobs.submit("a", *needs, max=1, batch={"size": 32}, limits={"memory": "1200Mi"})
    jobs.wait_for_workers("a", 1)
    batches = {line["batch"] for lines in jobs.records("a").values() for line in lines}
    assert batches == {16}
    told = cluster.kubectl("describe", "elasticjob", "a").stdout
    assert "OOMKilled; out of memory: batch 32 → 16" in told
    assert json.loads(cluster.status("a")["record"])["job"]["oom_batch"] == 32


def test_wrong_specs_are_refused_with_a_clear_message(cluster, jobs):
    def refusal(**changes):
        described = jobs.described("wrong")
        described["spec"].update(changes)
        with pytest.raises(ClusterError) as caught:
            cluster.api.create(jobs_path("default"), described)
        return str(caught.value)

    assert "spec.workers.min" in refusal(workers={"min": 0})  # the schema
    assert "linear" in refusal(learningRate="quadratic")
    assert "spec.template.spec.containers" in refusal(template={"spec": {"containers": []}})
    assert "min ≤ start ≤ max, got 5, 1 and 1" in refusal(workers={"min": 5, "max": 1})
    assert "spec.batch.max 8 is below" in refusal(batch={"size": 64, "max": 8})


def test_what_the_webhook_did_not_see_is_refused_by_a_condition(cluster, operator, jobs):
    jobs.submit("a", max=1)
    jobs.wait_for_workers("a", 1)
    cluster.kubectl("delete", "validatingwebhookconfiguration", OPERATOR)
    cluster.api.patch(f"{jobs_path('default')}/a", {"spec": {"workers": {"min": 2, "max": 1}}})
    accepted = cluster.wait(
        lambda: (c := cluster.condition("a", "Accepted")).get("status") == "False" and c,
        "a condition that refuses",
    )
    assert "min ≤ start ≤ max, got 2, 1 and 1" in accepted["message"]
    jobs.wait_for_steps("a")  # and what runs is left alone
    cluster.kubectl("apply", "-f", MANIFESTS / "webhook.yaml")
    cluster.kill(operator)  # the next one tells the API server of its webhook again


def test_of_two_operators_one_leads_and_the_other_takes_over(cluster, operator, jobs):
    cluster.start_operator("operator-second")
    jobs.submit("a", max=1)
    jobs.wait_for_workers("a", 1)
    assert cluster.leader() == operator
    cluster.kill(operator)
    cluster.wait(lambda: cluster.leader() == "operator-second", "another leader")
    jobs.submit("b", max=1)
    jobs.wait_for_workers("b", 1)
    jobs.wait_for_steps("a")
    cluster.kill("operator-second")
    cluster.only_operator(**cluster.ports)


def test_rights_reach_no_farther_than_they_must(cluster, jobs):
    jobs.submit("a", max=1)
    jobs.wait_for_workers("a", 1)

    def may(who, *words):
        account = f"system:serviceaccount:{who}"
        done = cluster.kubectl("auth", "can-i", "--as", account, *words, check=False)
        return done.stdout.strip() == "yes"

    operator, worker = f"{NAMESPACE}:{OPERATOR}", "default:a-worker"
    assert may(operator, "create", "pods")
    assert not may(operator, "get", "secrets", "-n", "default")
    assert not may(operator, "delete", "elasticjobs.elastic.garfield")
    assert not may(operator, "create", "pods", "--subresource=exec")
    assert may(worker, "update", "elasticjobs.elastic.garfield/a", "--subresource=status")
    assert not may(worker, "update", "elasticjobs.elastic.garfield/b", "--subresource=status")
    assert not may(worker, "list", "pods")
    assert not may(worker, "get", "secrets")


def test_a_dry_run_decides_and_changes_nothing(cluster, operator, jobs):
    cluster.kill(operator)
    cluster.start_operator("dry", dry_run=True)
    jobs.submit("a", max=1)
    decisions = cluster.directory / "dry-decisions" / "metrics.jsonl"
    cluster.wait(lambda: "default/a" in decisions.read_text(), "a decision about a")
    assert cluster.pods("a") == []
    assert cluster.status("a") == {}
    cluster.kill("dry")
    cluster.only_operator(**cluster.ports)
    jobs.wait_for_workers("a", 1)
