"""A Kubernetes cluster for tests, on this machine: a real control plane, and small nodes.

    certificates     who is who: an authority, and a certificate for each component
    control_plane    etcd, API server, controller manager and scheduler, as processes
    node_agent       stands where a kubelet would: runs pods' commands as processes
    pod_process      one pod on such a node: its volumes, its process, its status

Nodes and tests reach each other only through the API server.
"""

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from garfield.core.errors import ClusterError, ObjectAbsent
from garfield.elastic.kubernetes.access import from_kubeconfig
from garfield.elastic.kubernetes.client import ApiServer
from garfield.elastic.kubernetes.naming import core_path, jobs_path
from garfield.runs.process import ending_with_parent
from tests.kubernetes_cluster.control_plane import ControlPlane, kubectl

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
NAMESPACE, OPERATOR = "garfield-system", "garfield-elastic-operator"
WAIT_S = 100.0  # for what takes seconds on a quiet machine


class Cluster:
    """Use as a context: all that it has started is gone at its end."""

    def __init__(self, directory):
        self.directory = directory
        self.plane = ControlPlane(directory)
        self._processes, self._operators = {}, 0

    def __enter__(self):
        self.plane.__enter__()
        self.api = ApiServer(from_kubeconfig(self.plane.admin))
        return self

    def __exit__(self, *_):
        for name in list(self._processes):
            self.kill(name)
        self.api.close()
        self.plane.__exit__()

    def kubectl(self, *words, check=True):
        """Run it as the administrator; what it said, and its exit code."""
        done = subprocess.run(
            [kubectl(), "--kubeconfig", str(self.plane.admin), *map(str, words)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done

    def apply(self, content):
        """What a user does with a file."""
        path = self.directory / f"{content['metadata']['name']}.yaml"
        path.write_text(json.dumps(content))
        return self.kubectl("apply", "-f", path)

    def start_node(self, name, *, projection_s=0.3, **resources):
        """Start a machine with so much of each resource, and wait until it is ready."""
        user = f"system:node:{name}"
        config = self.plane.kubeconfig(name, user, "system:nodes")
        amounts = [f"--resource={kind}={amount}" for kind, amount in resources.items()]
        self.start(
            name, "tests.kubernetes_cluster.node_agent", config, name, *amounts,
            "--projection-s", projection_s, "--directory", self.directory / f"{name}-pods",
            "--certificate", self.directory / f"{name}.pem", self.directory / f"{name}.key",
        )  # fmt: skip
        self.wait(lambda: self.is_ready(name), f"{name} ready")

    def install(self):
        """Apply our manifests, and let the operator have the rights of its account and no more."""
        self.kubectl("apply", "-k", MANIFESTS)
        self.wait(lambda: self.api.list(jobs_path()) == [], "ElasticJobs known")
        path = core_path("serviceaccounts", NAMESPACE) + f"/{OPERATOR}"
        found = self.wait(lambda: self.api.get(path).get("secrets"), "an account's token")
        secret = self.api.get(f"{core_path('secrets', NAMESPACE)}/{found[0]['name']}")
        token = base64.b64decode(secret["data"]["token"]).decode()
        self.operator_config = self.plane.token_kubeconfig("operator", token)

    def start_operator(self, name="operator", **settings):
        """Start one, by its own account, with short periods; wait until it operates."""
        given = {
            "decide_s": 1, "monitor_s": 1, "settle_s": 0.1, "lease_s": 4, "node_grace_s": 2,
            "health_port": 0, "metrics_port": 0, "webhook_port": 0, "webhook_host": "127.0.0.1",
            "listen": "127.0.0.1", "lease_namespace": NAMESPACE, "identity": name, **settings,
        }  # fmt: skip
        flags = []
        for key, value in given.items():
            flag = f"--{key.replace('_', '-')}"
            flags += [flag] if value is True else [flag, value]
        self.start(
            name, "garfield", "elastic", "operate", "--kubeconfig", self.operator_config, *flags,
            "--out", self.directory / f"{name}-decisions",
        )  # fmt: skip
        self.wait(lambda: "Operating" in self.log(name), f"{name} operates")

    def only_operator(self, **settings):
        """The name of the one that leads, with no other beside it; started if there is none."""
        named = [name for name in self._processes if name.startswith("operator")]
        running = [name for name in named if self.is_running(name)]
        for name in running[1:]:
            self.kill(name)
        if running:
            return running[0]
        self._operators += 1
        name = f"operator-{self._operators}"
        self.start_operator(name, **settings)
        self.wait(lambda: self.leader() == name, f"{name} leads")
        return name

    def leader(self):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{OPERATOR}"
        return self.api.get(path)["spec"].get("holderIdentity")

    def is_ready(self, node):
        try:
            status = self.api.get(f"{core_path('nodes')}/{node}")["status"]
        except ObjectAbsent:
            return False
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        return conditions.get("Ready") == "True"

    def start(self, name, module, *words, **variables):
        """Start a Python module as a process that is killed with this one; its output is a log."""
        log = (self.directory / f"{name}.log").open("ab")
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **variables}
        process = subprocess.Popen(
            ending_with_parent([sys.executable, "-m", module, *map(str, words)]),
            stdout=log, stderr=log, env=environment, cwd=ROOT,
        )  # fmt: skip
        self._processes[name] = process, log

    def kill(self, name):
        """Kill −9, and wait for it."""
        process, log = self._processes.pop(name)
        process.kill()
        process.wait()
        log.close()

    def is_running(self, name):
        return self._processes[name][0].poll() is None

    def log(self, name):
        return (self.directory / f"{name}.log").read_text()

    def job(self, name, namespace="default"):
        return self.api.get(f"{jobs_path(namespace)}/{name}")

    def status(self, name, namespace="default"):
        return self.job(name, namespace).get("status", {})

    def condition(self, name, kind):
        """The condition of a job, or {}."""
        found = self.status(name).get("conditions", [])
        return next((each for each in found if each["type"] == kind), {})

    def pods(self, job=None, namespace="default"):
        query = {} if job is None else {"labelSelector": f"elastic.garfield/job={job}"}
        return self.api.list(core_path("pods", namespace), **query)

    def wait(self, condition, what, within_s=WAIT_S):
        deadline = time.monotonic() + within_s
        while True:
            try:
                found = condition()
            except ClusterError:
                found = None
            if found:
                return found
            assert time.monotonic() < deadline, f"{what} did not happen; {self._told()}"
            time.sleep(0.05)

    def _told(self):
        logs = {name: self.log(name)[-3000:] for name in self._processes}
        try:
            jobs = [job.get("status") for job in self.api.list(jobs_path())]
            pods = [(p["metadata"]["name"], p["status"]) for p in self.api.list(core_path("pods"))]
        except ClusterError as problem:
            jobs = pods = str(problem)
        return f"jobs: {jobs}\npods: {pods}\n" + "\n".join(f"{n}:\n{t}" for n, t in logs.items())
