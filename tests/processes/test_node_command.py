"""`garfield node`: a cluster started by hand, node by node, with certificates."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import invoke

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

NAMES = ("server-0", "worker-0", "worker-1", "worker-2")
GARFIELD = Path(sys.executable).parent / "garfield"
PATIENCE_S = 240.0  # for a machine that is busy otherwise


def free_ports(count):
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


@pytest.fixture
def cluster(tmp_path):
    """A cluster's file, with certificates; nodes are started by name and reaped."""
    nodes = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    lines = [f'{name} = "127.0.0.1:{port}"' for name, port in nodes.items()]
    settings = (
        'app = "ssmw"', 'model = "digits_mlp"', 'data = "digits"', "workers = 3", "steps = 20",
        "evaluate-every = 5", "timeout-s = 4", "give-up-s = 4", 'gar = "median"',
    )  # fmt: skip
    path = tmp_path / "cluster.toml"
    path.write_text("\n".join(['tls = "certs"', "[settings]", *settings, "[nodes]", *lines]))
    started = []

    def start(name, *words):
        command = [GARFIELD, "node", "--cluster", path, "--name", name, "--threads", "1", *words]
        started.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
            )
        )
        return started[-1]

    start.path = path
    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def make_certs(cluster):
    done = subprocess.run(
        [GARFIELD, "certs", "--cluster", cluster.path], capture_output=True, text=True, check=True
    )
    assert "4 certificates" in done.stdout


@pytest.mark.slow
def test_four_processes_with_tls_train_together_whoever_starts_late(cluster, tmp_path):
    make_certs(cluster)
    nodes = {"server-0": cluster("server-0", "--out", "kept")}
    nodes |= {name: cluster(name, "--out", f"of-{name}") for name in ("worker-0", "worker-1")}
    assert "listens on 127.0.0.1" in nodes["worker-1"].stdout.readline()
    nodes["worker-2"] = cluster("worker-2")  # the rule waits for all three
    told = {name: process.communicate(timeout=PATIENCE_S) for name, process in nodes.items()}
    for name, process in nodes.items():
        assert process.returncode == 0, told[name]
    assert "step 20/20, accuracy" in told["server-0"][0]
    assert "worker-2 is done at step 20" in told["worker-2"][0]
    rows = (tmp_path / "kept/metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(row)["event"] == "step" for row in rows) == 20
    assert (tmp_path / "kept/checkpoints/server-0-00000020.npz").exists()
    of_server = json.loads((tmp_path / "kept/summary.json").read_text())
    assert (of_server["node"], of_server["role"], of_server["steps"]) == ("server-0", "server", 20)
    assert of_server["accuracy"] > 0.5
    assert of_server["bytes_received"] >= 20 * 3 * 4 * 4810
    assert of_server["failed"] is None
    of_worker = json.loads((tmp_path / "of-worker-0/summary.json").read_text())
    assert (of_worker["role"], of_worker["steps"]) == ("worker", 20)
    assert of_worker["breakdown"]["compute_s"] > 0
    assert of_worker["accuracy"] is None
    for kept in ("kept", "of-worker-0"):
        assert 'gar = "median"' in (tmp_path / kept / "config.toml").read_text()


@pytest.mark.slow
def test_a_node_waits_for_the_others_and_ends_when_told_to(cluster):
    make_certs(cluster)
    process = cluster("worker-0", "--out", "kept")
    assert "listens" in process.stdout.readline()
    assert "worker-0 got 0 of 1 models for step 0" in process.stdout.readline()  # after give_up_s
    time.sleep(0.5)  # until it asks again
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "Traceback" not in out
    summary = json.loads((cluster.path.parent / "kept/summary.json").read_text())
    assert summary["interrupted"]
    assert summary["liars"]["server-0"]["detail"] == "connection refused"
    again = cluster("worker-0", "--resume", "kept")
    assert "listens" in again.stdout.readline()
    os.kill(again.pid, signal.SIGTERM)
    again.communicate(timeout=20)
    assert again.returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("worker-2 =", "worker-3 =", "worker-3 is not a node that the settings speak of"),
        ("tls =", "tsl =", "tsl is not a key of"),
        ("steps = 20", "stpes = 20", "Did you mean steps?"),
        ("[nodes]", "[noses]", "Did you mean nodes?"),
        ("workers = 3", "workers = 4", "does not say where these listen: worker-3"),
        ('worker-1 = "127.0.0.1:', 'worker-1 = "', "needs an address like"),
        ("workers = 3", "workers = 3\nf-workers = 2", "median needs n >= 5 inputs"),
        ('gar = "median"', 'gar = "medain"', "Did you mean median?"),
        ("workers = 3", 'workers = 3\nexclude = ["worker-7"]', "Did you mean worker-"),
    ],
)
def test_a_cluster_file_with_mistakes_is_refused(cluster, old, new, message):

    cluster.path.write_text(cluster.path.read_text().replace(old, new))
    words = ["node", "--cluster", str(cluster.path), "--name", "worker-0"]
    done = invoke(words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_missing_data_are_named_with_the_way_to_get_them_and_nothing_is_written(cluster):

    text = cluster.path.read_text().replace('tls = "certs"\n', "")
    text = text.replace('"digits_mlp"', '"mnist_cnn"')
    cluster.path.write_text(text.replace('"digits"', '"mnist"\ndata-dir = "/nowhere"'))
    kept = cluster.path.parent / "kept"
    words = ["node", "--cluster", str(cluster.path), "--name", "worker-0", "--out", str(kept)]
    done = invoke(words)
    assert done.exit_code == 2
    assert "garfield data fetch mnist" in done.stderr
    assert not kept.exists()


def test_two_nodes_at_one_address_are_refused(cluster):
    from garfield.core.errors import ConfigError
    from garfield.launch.cluster import read_cluster

    text = cluster.path.read_text()
    ports = [row.rpartition(":")[2].strip('"') for row in text.splitlines() if "127.0.0.1" in row]
    cluster.path.write_text(text.replace(ports[2], ports[1]))
    with pytest.raises(ConfigError, match=f"two nodes cannot both listen on 127.0.0.1:{ports[1]}"):
        read_cluster(cluster.path)


def test_a_certificate_of_another_role_or_name_is_refused_and_nothing_is_written(cluster):

    from garfield.transport.certs import make

    certs = cluster.path.parent / "certs"
    make(certs, {"worker-0": "server", "worker-1": "worker"})
    (certs / "worker-2.pem").write_bytes((certs / "worker-1.pem").read_bytes())
    (certs / "worker-2.key").write_bytes((certs / "worker-1.key").read_bytes())
    for name, message in (
        ("worker-0", "says that it is a server, and in this cluster it is a worker"),
        ("worker-2", "worker-2.pem is the certificate of worker-1"),
    ):
        words = ["node", "--cluster", str(cluster.path), "--name", name]
        done = invoke([*words, "--out", str(certs.parent / "kept")])
        assert done.exit_code == 2
        assert message in done.stderr
        assert not (certs.parent / "kept").exists()


def test_a_node_that_joins_later_gets_its_certificate_from_the_same_authority(cluster):

    make_certs(cluster)
    certs = cluster.path.parent / "certs"
    before = {path.name: path.read_bytes() for path in certs.iterdir()}
    text = cluster.path.read_text().replace("workers = 3", "workers = 4")
    cluster.path.write_text(text + '\nworker-3 = "127.0.0.1:1"\n')
    done = invoke(["certs", "--cluster", str(cluster.path), "--add"])
    assert done.exit_code == 0, done.output
    assert "for worker-3." in done.stdout
    after = {path.name: path.read_bytes() for path in certs.iterdir()}
    assert set(after) - set(before) == {"worker-3.pem", "worker-3.key"}
    assert before.items() <= after.items()
    words = ["certs", "--out", str(certs), "--names", "worker-3", "--add"]
    assert "has " in invoke(words).stderr
    again = invoke(["certs", "--cluster", str(cluster.path)])
    assert "garfield certs --add" in again.stderr


def test_wrong_names_and_certificates_are_refused(cluster):

    def node(name):
        return invoke(["node", "--cluster", str(cluster.path), "--name", name])

    assert "worker-9 is not a node of this cluster" in node("worker-9").stderr
    missing = node("worker-0")
    assert missing.exit_code == 2
    assert "worker-0.pem" in missing.stderr or "ca.pem" in missing.stderr
    certs = ["certs", "--out", str(cluster.path.parent / "certs"), "--names", "worker-0,server-0"]
    assert invoke(certs).exit_code == 0
    text = cluster.path.read_text().replace('app = "ssmw"', 'app = "decentralized"')
    text = text.replace("worker-", "node-").replace("server-0", "spare-0")
    cluster.path.write_text("\n".join(row for row in text.splitlines() if "spare" not in row))
    assert "node-0.pem cannot be read" in node("node-0").stderr


def test_a_port_in_use_is_named(cluster):
    make_certs(cluster)
    first = cluster("worker-0")
    assert "listens" in first.stdout.readline()
    second = cluster("worker-0")
    _, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 2
    assert "Cannot listen on 127.0.0.1" in err
