"""The operator's pure parts: specs, capacity, amounts, pods, statuses, certificates."""

from fractions import Fraction

import pytest
import yaml

from garfield.core.errors import ConfigError
from garfield.elastic.control.record import JobRecord, Phase, record_of
from garfield.elastic.job.coordination import BatchSize, Generation, JobView
from garfield.elastic.job.on_kubernetes import batch_from_json, later_batch, reports_in
from garfield.elastic.kubernetes import naming
from garfield.elastic.operator import webhook
from garfield.elastic.operator.capacity import capacity, silent_s
from garfield.elastic.operator.intent import Intent, seen
from garfield.elastic.operator.objects import companions, worker_pod
from garfield.elastic.operator.quantities import amount
from garfield.elastic.operator.settings import Endpoints, OperatorSettings
from garfield.elastic.operator.specification import request_of
from garfield.elastic.operator.status import conditions_of, status_of
from garfield.elastic.operator.worker_pods import PodState, observed
from garfield.elastic.policy import Job, JobRequest
from garfield.elastic.policy.snapshot import Node
from tests.kubernetes_cluster.cluster import MANIFESTS

GPU = naming.GPU


def job(**spec):
    container = {"name": "train", "image": "i", "command": ["python"]}
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "generation": 3},
        "spec": {"template": {"spec": {"containers": [container]}}, **spec},
    }


def pod(name, *, node="n1", phase="Running", gpus="1", labels=None, **metadata):
    container = {"name": "c", "resources": {"limits": {GPU: gpus}}}
    created = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {**created, "labels": labels or {}, **metadata},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


def node(name, gpus, *, ready="True", **spec):
    status = {"allocatable": {GPU: gpus}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def test_a_spec_without_numbers_has_the_thesiss_defaults():
    assert request_of({}) == JobRequest()
    assert request_of({"workers": {"max": 1}}).start_workers == 1
    assert request_of({"workers": {"min": 4, "max": 8}}).start_workers == 4


def test_a_job_that_has_started_may_be_scaled_below_its_start():
    spec = {"workers": {"min": 1, "start": 4, "max": 2}}
    with pytest.raises(ConfigError):
        request_of(spec)
    assert request_of(spec, has_started=True).start_workers == 2


def test_reports_that_are_none_are_passed_over():
    data = {"a": '{"step": 1}', "b": "half a re", "c": "[1]", "d": "[" * 100_000}
    assert reports_in({"data": data}) == {"a": {"step": 1}}
    assert reports_in({}) == {}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"workers": {"min": 3, "start": 2}}, "min ≤ start ≤ max, got 3, 2 and 16"),
        ({"workers": {"min": 5, "max": 1}}, "min ≤ start ≤ max, got 5, 1 and 1"),
        ({"batch": {"size": 64, "max": 8}}, "spec.batch.max 8 is below batch 64"),
        ({"workers": {"min": 2}, "batch": {"maxGlobal": 100}}, "spec.batch.maxGlobal 100 is below"),
        ({"workers": {"min": 3, "start": 3}, "powersOfTwo": True}, "spec.powersOfTwo"),
    ],
)
def test_rules_across_fields_are_told_in_the_words_of_the_spec(spec, said):
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        request_of(spec)


def test_amounts_are_read_as_kubernetes_writes_them():
    assert [amount(each) for each in ("4", "500m", "1Ki", "2G", 3)] == [4, 0.5, 1024, 2 * 10**9, 3]
    assert amount("1e3") == 1000
    assert amount("nonsense") == Fraction(0)


def test_capacity_is_what_ready_uncordoned_nodes_have_left_of_foreign_pods():
    nodes = [
        node("n1", "4"), node("n3", "8", unschedulable=True),
        node("n4", "2"), node("n5", "0"),
    ]  # fmt: skip
    pods = [
        pod("ours"), pod("foreign", gpus="2"), pod("over", phase="Succeeded"),
        pod("greedy", node="n4", gpus="5"), pod("nowhere", node=""),
    ]  # fmt: skip
    assert capacity(nodes, pods, GPU, {"ours"}) == (Node("n1", 2), Node("n4", 0))


def test_a_node_is_silent_from_the_moment_it_was_not_ready():
    assert silent_s(node("n", "1"), at_s=1767225600) == 0
    silent = node("n", "1", ready="Unknown")
    assert silent_s(silent, at_s=1767225600) == float("inf")
    silent["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert silent_s(silent, at_s=1767225600 + 7) == 7
    assert 0 < silent_s(silent, at_s=1767225600) < 1e-6


def test_pods_are_observed_with_how_they_ended():
    ended = {"name": "c", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    failed = pod("failed", phase="Failed")
    failed["status"]["containerStatuses"] = [ended]
    found = observed(
        [pod("well"), failed, pod("lost", node="n2"), pod("stuck", phase="Pending"),
         pod("going", deletionTimestamp="2026-01-01T00:00:00Z"), pod("over", phase="Succeeded")],
        {"n1"}, at_s=1767225600 + 700, start_timeout_s=600,
    )  # fmt: skip
    assert {name: each.state for name, each in found.items()} == {
        "well": PodState.LIVING, "failed": PodState.FAILED, "lost": PodState.LOST,
        "stuck": PodState.FAILED, "going": PodState.LEAVING, "over": PodState.ENDED,
    }  # fmt: skip
    assert found["failed"].ending == "failed: exit code 3, Error"
    assert "did not start within 600 s" in found["stuck"].ending
    assert not any(each.out_of_memory for each in found.values())


def test_a_pod_killed_for_its_memory_is_told_apart():
    killed = pod("killed", phase="Failed")
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    killed["status"]["containerStatuses"] = [{"name": "c", "state": ended}]
    seen_pod = observed([killed], {"n1"}, at_s=1767225600, start_timeout_s=600)["killed"]
    assert seen_pod.out_of_memory
    view = JobView(Generation(1, ("killed",)), 1)
    assert seen(Intent(("killed",)), view, {"killed": seen_pod}).out_of_memory


def test_a_workers_pod_is_the_users_template_with_one_gpu_and_its_jobs_name():
    made = worker_pod(job(), "j-7", GPU)
    (container,) = made["spec"]["containers"]
    assert container["resources"] == {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    assert {each["name"]: each.get("value") for each in container["env"]} == {
        "GARFIELD_ELASTIC_JOB": "kubernetes://ns/j",
        "GARFIELD_ELASTIC_MEMBER": None,
        "GARFIELD_ELASTIC_HOST": None,
    }
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_a_jobs_workers_may_touch_their_own_job_and_nothing_else():
    made = {each["kind"]: each for _, each in companions(job(), BatchSize(8, 1))}
    assert all(rule["resourceNames"] for rule in made["Role"]["rules"])
    assert made["RoleBinding"]["subjects"][0]["name"] == "j-worker"


def test_a_record_survives_its_way_through_a_status():
    record = JobRecord(Job("ns/j", JobRequest(), 4).given(2, 64), submitted_s=0.1, why="why")
    status = status_of(job(), record, Intent(("j-0",), 1, 2), 1, conditions_of(record, ""))
    assert record_of(yaml.safe_load(status["record"])) == record
    assert status["phase"] == "Running"
    ended = record.ended(Phase.FAILED, 2.0, "exit code 1")
    failed = {each.kind: each for each in conditions_of(ended, "")}["Failed"]
    assert (failed.holds, failed.message) == (True, "exit code 1")


def test_of_two_batch_sizes_the_later_counts_and_the_lower_limit():
    assert later_batch(BatchSize(8, 5, most=8), BatchSize(64, 9)) == BatchSize(64, 9, most=8)
    assert later_batch(BatchSize(8, 9), BatchSize(64, 5, most=70)) == BatchSize(8, 9, most=70)
    assert batch_from_json("half a fi") is None
    assert batch_from_json('{"size": 0, "sinceUs": 1}') is None


def test_a_certificate_holds_for_the_host_it_was_made_for():
    made = webhook.make_certificate("operator.ns.svc")
    assert made.holds_for("operator.ns.svc")
    assert not made.holds_for("other.ns.svc")
    assert webhook.make_certificate("127.0.0.1").holds_for("127.0.0.1")


def test_manifests_and_code_agree_on_names_and_ports():
    documents = {}
    for file in MANIFESTS.glob("*.yaml"):
        for each in yaml.safe_load_all(file.read_text()):
            documents[each["kind"], each.get("metadata", {}).get("name")] = each
    definition = documents["CustomResourceDefinition", f"{naming.PLURAL}.{naming.GROUP}"]["spec"]
    assert definition["names"]["kind"] == naming.KIND
    assert definition["versions"][0]["name"] == naming.VERSION
    defaults = OperatorSettings()
    name = defaults.election.lease_name
    assert ("ValidatingWebhookConfiguration", webhook.CONFIGURATION) in documents
    service = documents["Service", Endpoints().webhook_service]["spec"]
    assert service["ports"][0]["targetPort"] == defaults.endpoints.webhook_port
    role = documents["Role", "garfield-elastic-operator"]
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named == [[name], [webhook.CONFIGURATION]]
    assert request_of(documents["ElasticJob", "example"]["spec"]).max_workers == 8
