"""A node of the tests: stands where a kubelet would, and knows the cluster by its API server only.

It registers a Node with GPUs that do not exist, beats its heart, runs the pods that the scheduler
gives it, tells their status and serves their logs. When it is killed, its pods end with it: that is
a machine whose power is cut. Told by SIGTERM to end, it does the same.

    python -m tests.kubernetes_cluster.node_agent KUBECONFIG NAME --gpus 2 --directory DIR
"""

import argparse
import logging
import os
import signal
import ssl
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from garfield.core.errors import ClusterError, ClusterUnreachable, ObjectAbsent, WriteConflict
from garfield.elastic.kubernetes.access import from_kubeconfig
from garfield.elastic.kubernetes.client import ApiServer
from garfield.elastic.kubernetes.naming import core_path
from tests.kubernetes_cluster.pod_process import PodProcess, now

LOOK_S, HEARTBEAT_S = 0.1, 1.0
_log = logging.getLogger("node")


class NodeAgent:
    def __init__(self, api, name, resources, directory, projection_s):
        self._api, self._name, self._resources = api, name, resources
        self._directory, self._projection_s = directory, projection_s
        self._pods = {}
        host, _, port = api.access.server.removeprefix("https://").rpartition(":")
        self._environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def register(self, log_port):
        labels = {"kubernetes.io/hostname": self._name}
        node = {
            "metadata": {"name": self._name, "labels": labels},
        }
        with suppress(WriteConflict):  # it was here before
            self._api.create(core_path("nodes"), node)
        capacity = {"cpu": "64", "memory": "64Gi", "pods": "100", **self._resources}
        self._status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
        }

    def run(self):
        beaten = 0.0
        while True:
            try:
                if time.monotonic() - beaten > HEARTBEAT_S:
                    beaten = time.monotonic()
                    self._beat()
                self._look()
                for pod in self._pods.values():
                    self._quietly(pod.follow)
            except ClusterUnreachable as problem:
                _log.info("%s", problem)
            time.sleep(LOOK_S)

    def log_of(self, namespace, name):
        for pod in self._pods.values():
            metadata = pod.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod.log.read_bytes()
        return None

    def _beat(self):
        beat = now()
        ready = {"type": "Ready", "status": "True", "reason": "Beats", "lastHeartbeatTime": beat}
        status = {**self._status, "conditions": [ready]}
        self._api.patch(f"{core_path('nodes')}/{self._name}/status", {"status": status})

    def _look(self):
        mine = self._api.list(core_path("pods"), fieldSelector=f"spec.nodeName={self._name}")
        wanted = {pod["metadata"]["uid"]: pod for pod in mine}
        for uid, pod in wanted.items():
            if uid not in self._pods and pod["status"]["phase"] == "Pending":
                self._quietly(lambda pod=pod: self._start(pod))
        for uid in list(self._pods):
            self._quietly(lambda uid=uid: self._serve(uid, wanted.get(uid)))
        for uid, pod in wanted.items():
            if uid not in self._pods and "deletionTimestamp" in pod["metadata"]:
                self._forget(pod)  # of a life before this one's

    def _start(self, pod):
        if "deletionTimestamp" in pod["metadata"]:
            return
        uid = pod["metadata"]["uid"]
        running = PodProcess(
            self._api, pod, self._directory / uid, projection_s=self._projection_s,
            environment=self._environment,
        )  # fmt: skip
        running.start()
        self._pods[uid] = running

    def _serve(self, uid, pod):
        running = self._pods[uid]
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            running.terminate()
        if pod is None:
            if running.exit_code is not None:
                running.status()  # settles what outlives its process
                del self._pods[uid]
            return
        status = running.status()
        if status["phase"] != pod["status"]["phase"]:
            self._api.patch(f"{self._path(pod)}/status", {"status": status})
        if running.exit_code is not None and "deletionTimestamp" in pod["metadata"]:
            self._forget(pod)

    def _forget(self, pod):
        self._api.delete(self._path(pod), grace_s=0)

    def _path(self, pod):
        metadata = pod["metadata"]
        return f"{core_path('pods', metadata['namespace'])}/{metadata['name']}"

    def _quietly(self, act):
        """What the API server refuses now, a volume's object that is not there yet say, is tried
        again."""
        try:
            act()
        except ClusterUnreachable:
            raise
        except (ObjectAbsent, ClusterError) as problem:
            _log.info("%s", problem)


def serve_logs(agent, certificate):
    """Answer `kubectl logs`, which the API server asks the node for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = self.path.partition("?")[0].strip("/").split("/")
            found = agent.log_of(*parts[1:3]) if parts[0] == "containerLogs" else None
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("name")
    parser.add_argument("--resource", action="append", default=[], metavar="NAME=AMOUNT")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--certificate", nargs=2, required=True)
    parser.add_argument("--projection-s", type=float, default=1.0)
    told = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    resources = dict(each.split("=") for each in told.resource)
    api = ApiServer(from_kubeconfig(told.kubeconfig))
    agent = NodeAgent(api, told.name, resources, told.directory, told.projection_s)
    agent.register(serve_logs(agent, told.certificate))
    agent.run()


if __name__ == "__main__":
    sys.exit(main())
