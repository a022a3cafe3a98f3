"""A real control plane on loopback: etcd, API server, controller manager and scheduler.

Its programs are built once by `make kubernetes`. Each is a child of the test's process, and is
killed by the kernel if that ends.
"""

import os
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from garfield.core.files import as_json
from garfield.runs.process import ending_with_parent
from tests.kubernetes_cluster.certificates import LOOPBACK, Authority
from tools import build_kubernetes

READY_S = 60.0  # what takes four seconds on a quiet machine
CONTROLLERS = (
    "garbagecollector", "namespace", "nodelifecycle", "podgc", "serviceaccount",
    "serviceaccount-token", "root-ca-cert-publisher",
)  # fmt: skip


def require_binaries():
    """Skip what needs a control plane where its programs were not built."""
    missing = build_kubernetes.missing(build_kubernetes.home())
    if missing:
        pytest.skip(f"{', '.join(missing)} not found: build them with `make kubernetes`.")


def kubectl():
    """The path of kubectl."""
    return shutil.which("kubectl") or str(build_kubernetes.home() / "bin" / "kubectl")


def free_port():
    with socket.create_server((LOOPBACK, 0)) as listening:
        return listening.getsockname()[1]


class ControlPlane:
    """Use as a context: what was started is gone at its end."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self._processes = {}
        self.port = free_port()
        self.url = f"https://{LOOPBACK}:{self.port}"
        self.authority = Authority(self.directory)
        self.server_certificate = self.authority.issue("apiserver", "kube-apiserver")
        self._tokens_key = self.authority.issue_key("service-accounts")
        self.admin = self.kubeconfig("admin", "test", "system:masters")

    def __enter__(self):
        try:
            self._start_etcd()
            self.start_api_server()
            self._start_controller_manager()
            self._start_scheduler()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(list(self._processes)):
            self.kill(name)

    def kubeconfig(self, file, user, group=None):
        """Write credentials of one user for this API server, and return the file's path."""
        certificate, key = self.authority.issue(file, user, group)
        identity = {"client-certificate": str(certificate), "client-key": str(key)}
        return self._write_kubeconfig(file, identity)

    def token_kubeconfig(self, file, token):
        """The same for who has a token: a service account."""
        return self._write_kubeconfig(file, {"token": token})

    def start_api_server(self):
        certificate, key = self.server_certificate
        self._start(
            "kube-apiserver",
            etcd_servers=f"http://{LOOPBACK}:{self._etcd_port}",
            bind_address=LOOPBACK,
            secure_port=self.port,
            insecure_port=0,
            tls_cert_file=certificate,
            tls_private_key_file=key,
            client_ca_file=self.authority.path,
            authorization_mode="Node,RBAC",
            enable_admission_plugins="NodeRestriction",
            service_account_key_file=self._tokens_key,
            service_account_signing_key_file=self._tokens_key,
            service_account_issuer="https://kubernetes.default.svc",
            service_cluster_ip_range="10.0.0.0/24",
            kubelet_preferred_address_types="InternalIP",
            endpoint_reconciler_type="none",
        )
        self._wait_until_ready("kube-apiserver", f"{self.url}/readyz")

    def kill(self, name):
        """End one component at once, and wait for it."""
        process, log = self._processes.pop(name)
        process.kill()
        process.wait()
        log.close()

    def _start_etcd(self):
        self._etcd_port, peers = free_port(), f"http://{LOOPBACK}:{free_port()}"
        clients = f"http://{LOOPBACK}:{self._etcd_port}"
        self._start(
            "etcd",
            data_dir=self.directory / "etcd",
            listen_client_urls=clients,
            advertise_client_urls=clients,
            listen_peer_urls=peers,
            initial_advertise_peer_urls=peers,
            initial_cluster=f"default={peers}",
        )
        self._wait_until_ready("etcd", f"{clients}/health")

    def _start_controller_manager(self):
        self._start(
            "kube-controller-manager",
            kubeconfig=self.admin,
            controllers=",".join(CONTROLLERS),
            service_account_private_key_file=self._tokens_key,
            root_ca_file=self.authority.path,
            leader_elect="false",
            port=0,
            secure_port=0,
            # a node that is silent for so long is taken for lost; 40 s by default
            node_monitor_period="500ms",
            node_monitor_grace_period="4s",
        )

    def _start_scheduler(self):
        self._start(
            "kube-scheduler", kubeconfig=self.admin, leader_elect="false", port=0, secure_port=0
        )

    def _start(self, name, **flags):
        program = build_kubernetes.home() / "bin" / name
        words = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
        log = (self.directory / f"{name}.log").open("ab")
        process = subprocess.Popen(
            ending_with_parent([program, *words]), stdout=log, stderr=log, cwd=self.directory,
            env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        self._processes[name] = process, log

    def _wait_until_ready(self, name, address):
        process, _ = self._processes[name]
        deadline = time.monotonic() + READY_S
        trusted = ssl.create_default_context(cafile=self.authority.path)
        trusted.load_cert_chain(self.directory / "admin.pem", self.directory / "admin.key")
        with httpx.Client(verify=trusted, trust_env=False) as client:
            while True:
                assert process.poll() is None, (
                    f"{name} ended with {process.poll()}: {self._told(name)}"
                )
                assert time.monotonic() < deadline, f"{name} is not ready: {self._told(name)}"
                try:
                    if client.get(address).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.05)

    def _told(self, name):
        return (self.directory / f"{name}.log").read_text()[-2000:]

    def _write_kubeconfig(self, file, identity):
        path = self.directory / f"{file}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority.path)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": identity}],
        }
        path.write_text(as_json(content))  # every JSON document is a YAML one
        return path
