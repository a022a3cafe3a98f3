"""`garfield node` on several machines, with TLS: nodes die and come back, a cable is pulled."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts import Hosts

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

GARFIELD = Path(sys.executable).parent / "garfield"
PATIENCE_S = 120.0  # for a machine that is busy otherwise
STEPS = 450
SETTINGS = (
    'app = "msmw"', 'model = "digits_mlp"', 'data = "digits"', "workers = 4", "servers = 4",
    "f-workers = 1", "f-servers = 1", 'gar = "median"', f"steps = {STEPS}", "evaluate-every = 0",
    "timeout-s = 2", "give-up-s = 60",
)  # fmt: skip
PLACES = {
    "server-0": 0, "server-1": 1, "server-2": 2, "server-3": 3,
    "worker-0": 0, "worker-1": 1, "worker-2": 2, "worker-3": 3,
}  # fmt: skip


class Nodes:
    """The nodes of one cluster, each on its host, and what its servers have written down."""

    def __init__(self, hosts, directory):
        self.hosts, self.directory = hosts, directory
        self.path = directory / "cluster.toml"
        self.running = {}
        listed = [
            f'{name} = "{hosts.address(host)}:{7000 + number}"'
            for number, (name, host) in enumerate(PLACES.items())
        ]
        text = ['tls = "certs"', "[settings]", *SETTINGS, "[nodes]", *listed]
        self.path.write_text("\n".join(text))
        subprocess.run([GARFIELD, "certs", "--cluster", self.path], check=True, capture_output=True)

    def start(self, name):
        words = [GARFIELD, "node", "--cluster", self.path, "--name", name, "--threads", "1"]
        if name.startswith("server"):
            words += ["--out", name]
        log = (self.directory / f"{name}.log").open("a")
        self.running[name] = subprocess.Popen(
            [*self.hosts.inside(PLACES[name]), *words], cwd=self.directory, stdout=log, stderr=log
        )
        log.close()

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def steps(self, server):
        """All that it has told of its steps."""
        path = self.directory / server / "metrics.jsonl"
        rows = path.read_text().splitlines() if path.exists() else []
        told = [json.loads(row) for row in rows if row.endswith("}")]
        return [event for event in told if event["event"] == "step"]

    def step(self, server):
        told = self.steps(server)
        return told[-1]["step"] if told else 0

    def gathered(self, server):
        """How many gradients it had at its last step."""
        told = self.steps(server)
        return told[-1]["gradients"] if told else 0

    def until(self, condition, why):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            ended = {n: p.returncode for n, p in self.running.items() if p.poll() is not None}
            assert not ended, (why, ended, self.logs(ended))
            assert time.monotonic() < deadline, (why, self.logs(self.running))
            time.sleep(0.1)

    def logs(self, names):
        return {name: (self.directory / f"{name}.log").read_text()[-600:] for name in names}

    def end(self):
        """In good order, as an operator does; how each of them ended."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(timeout=PATIENCE_S) for name, process in self.running.items()}

    def reap(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def nodes(tmp_path):
    with Hosts(4) as hosts:
        nodes = Nodes(hosts, tmp_path)
        yield nodes
        nodes.reap()
    assert not [name for name in os.listdir("/run/netns") if name.startswith(hosts._prefix)]


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_cluster_outlives_a_killed_worker_and_an_unplugged_host_and_takes_both_back(nodes):
    for name in PLACES:
        nodes.start(name)
    nodes.until(lambda: nodes.step("server-0") >= 5, "all start")

    nodes.kill("worker-3")
    nodes.until(lambda: nodes.gathered("server-0") == 3, "one worker is missed")
    nodes.start("worker-3")
    nodes.until(lambda: nodes.gathered("server-0") == 4, "it is heard again")

    nodes.hosts.unplug(2)
    here, there = nodes.step("server-0"), nodes.step("server-2")
    nodes.until(lambda: nodes.step("server-0") >= here + 15, "the others go on")
    assert nodes.step("server-2") <= there + 2
    nodes.hosts.plug(2)
    nodes.until(lambda: nodes.step("server-2") > here + 15, "its server catches up")
    nodes.until(lambda: nodes.gathered("server-0") == 4, "its worker is heard again")

    servers = [name for name in PLACES if name.startswith("server")]
    nodes.until(lambda: all(nodes.step(name) == STEPS for name in servers), "all end")
    final = [nodes.steps(name)[-1]["accuracy"] for name in servers]
    assert min(final) > 0.8
    assert max(final) - min(final) < 0.01
    assert set(nodes.end().values()) == {0}
