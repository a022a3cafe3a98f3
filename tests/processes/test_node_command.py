"""`garfield node`: a cluster started by hand, node by node, with certificates."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
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


def until_said(process, text):
    """Read what a node prints up to the line that has this text in it."""
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"it ended without saying {text!r}: {process.stderr.read()}")


def rewrite(cluster, pattern, replacement):
    text = cluster.path.read_text()
    assert re.search(pattern, text)
    cluster.path.write_text(re.sub(pattern, replacement, text))


def make_certs(cluster):
    done = subprocess.run(
        [GARFIELD, "certs", "--cluster", cluster.path], capture_output=True, text=True, check=True
    )
    assert "4 certificates" in done.stdout


@pytest.mark.slow
def test_four_processes_train_together_though_one_is_late_and_dials_in(cluster, tmp_path):
    rewrite(cluster, 'worker-2 = ".*"', 'worker-2 = "dials-in"')
    make_certs(cluster)
    nodes = {"server-0": cluster("server-0", "--out", "kept")}
    nodes |= {name: cluster(name, "--out", f"of-{name}") for name in ("worker-0", "worker-1")}
    assert "listens on 127.0.0.1" in nodes["worker-1"].stdout.readline()
    nodes["worker-2"] = cluster("worker-2")  # the rule waits for all three
    told = {name: process.communicate(timeout=PATIENCE_S) for name, process in nodes.items()}
    for name, process in nodes.items():
        assert process.returncode == 0, told[name]
    assert "step 20/20, accuracy" in told["server-0"][0]
    assert "worker-2 dials its servers" in told["worker-2"][0]
    assert "worker-2 is done at step 20" in told["worker-2"][0]
    rows = (tmp_path / "kept/metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(row)["event"] == "step" for row in rows) == 20
    assert (tmp_path / "kept/checkpoints/server-0-00000020.safetensors").exists()
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


@pytest.mark.heavy
def test_a_node_waits_for_the_others_and_ends_when_told_to(cluster):
    make_certs(cluster)
    process = cluster("worker-0", "--out", "kept")
    assert "listens" in process.stdout.readline()
    until_said(process, "worker-0 has waited 4 s for the ")
    until_said(process, "worker-0 got 0 of 1 models for step 0")  # after give_up_s
    time.sleep(0.5)  # until it asks again
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "Traceback" not in out
    summary = json.loads((cluster.path.parent / "kept/summary.json").read_text())
    assert summary["interrupted"]
    assert summary["silent"]["server-0"]["detail"] == "connection refused"
    again = cluster("worker-0", "--resume", "kept")
    assert "listens" in again.stdout.readline()
    os.kill(again.pid, signal.SIGTERM)
    again.communicate(timeout=20)
    assert again.returncode == 0


@pytest.mark.heavy
def test_a_node_says_what_it_does_and_who_lies_and_the_same_command_goes_on(cluster, tmp_path):
    """As a restart policy gives it: again and again."""
    text = cluster.path.read_text().replace('tls = "certs"\n', "")
    lying = 'workers = 3\nbyzantine-workers = 1\nworker-attack = "nan"\nservers = 1'
    cluster.path.write_text(text.replace("workers = 3", lying))
    workers = {name: cluster(name, "--out", name) for name in NAMES if name != "server-0"}
    server = cluster("server-0", "--out", "kept")
    out, err = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0, err
    lines = out.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines), out
    lied = [line for line in lines if "warning: worker-2 lied to server-0" in line]
    assert len(lied) == 2, out  # the first of twenty, and the tenth
    assert "once: not finite" in lied[0]
    assert lines[-1].endswith("worker-2 lied: 20× not finite")
    summary = json.loads((tmp_path / "kept/summary.json").read_text())
    assert summary["left_out"] == {}  # itself neither
    again = cluster("server-0", "--out", "kept")
    out, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    assert "server-0 is done at step 20" in out
    told = [json.loads(row) for row in (tmp_path / "kept/metrics.jsonl").open()]
    assert {"event": "resumed", "step": 20} in told
    for process in workers.values():  # no server is left, and they are told to end
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)  # by somebody impatient
    for name, process in workers.items():
        assert process.wait(PATIENCE_S) == 0
        process.communicate()
        assert json.loads((tmp_path / name / "summary.json").read_text())["node"] == name
    back = cluster("worker-0", "--out", "worker-0")
    assert "listens" in back.stdout.readline()
    until_said(back, "has waited 4 s for the ")


def test_a_node_goes_on_only_with_what_is_its_own(cluster, tmp_path):
    def node(*words):
        return invoke(["node", "--cluster", cluster.path, "--name", "worker-0", *words])

    def kept(name, app="ssmw", node="worker-0"):
        (tmp_path / name).mkdir()
        text = f'app = "{app}"\nmodel = "digits_mlp"\nframework = "torch"\ndata = "digits"\n'
        (tmp_path / name / "config.toml").write_text(text)
        event = json.dumps({"event": "done", "node": node, "step": 3})
        (tmp_path / name / "metrics.jsonl").write_text(event + "\n")
        return tmp_path / name

    fresh = node("--out", kept("fresh"), "--fresh")
    assert (fresh.exit_code, "is not empty" in fresh.stderr) == (2, True)
    other = node("--out", kept("other", node="worker-1"))
    assert (other.exit_code, "holds what worker-1 left" in other.stderr) == (2, True)
    changed = node("--out", kept("changed", app="vanilla"))
    assert (changed.exit_code, "whose app is vanilla" in changed.stderr) == (2, True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").touch()
    foreign = node("--out", tmp_path / "notes")
    assert (foreign.exit_code, "is not empty" in foreign.stderr) == (2, True)
    (tmp_path / "notes/mine.txt").rename(tmp_path / "notes/.config.toml.4711.part")
    killed = node("--out", tmp_path / "notes")  # at its very beginning, and now begins again
    assert "ca.pem" in killed.stderr  # it gets as far as its certificate


def steps_told(path):
    rows = path.read_text().splitlines() if path.exists() else []
    told = [json.loads(row) for row in rows if row.endswith("}")]
    return [event["step"] for event in told if event["event"] == "step"]


@pytest.mark.heavy
@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_only_server_is_killed_and_takes_its_workers_back_to_its_checkpoint(cluster, tmp_path):
    """They are ahead of what it has saved, and have waited for longer than give_up_s."""
    text = cluster.path.read_text().replace("steps = 20", "steps = 400\ncheckpoint-every = 25")
    text = text.replace("timeout-s = 4", "timeout-s = 1").replace("give-up-s = 4", "give-up-s = 2")
    cluster.path.write_text(text)
    make_certs(cluster)
    workers = {name: cluster(name, "--out", f"of-{name}") for name in NAMES[1:]}
    server, metrics = cluster("server-0", "--out", "kept"), tmp_path / "kept/metrics.jsonl"
    deadline = time.monotonic() + PATIENCE_S
    while not (steps := steps_told(metrics)) or steps[-1] < 30 or steps[-1] % 25 < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.kill()
    server.communicate()
    died_at = steps_told(metrics)[-1]
    for process in workers.values():
        while "got 0 of 1 models" not in process.stdout.readline():
            assert process.poll() is None
    again = cluster("server-0", "--resume", "kept")
    told, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    assert "step 400/400, accuracy" in told
    steps = steps_told(metrics)
    begun = next(at for at, (a, b) in enumerate(pairwise(steps)) if b <= a)
    assert steps[begun] >= died_at
    assert steps[begun + 1 :] == list(range(steps[begun + 1], 401))  # from its checkpoint on
    assert steps[begun + 1] % 25 == 1
    for name, process in workers.items():
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, (name, out, err)
        assert "its servers were started again. It goes back to step" in out
        assert "without its momentum" not in out


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
        (
            "tls =",
            'insecure = "no"\ntls =',
            "insecure is a text, 'no'. Write insecure = true or insecure = false.",
        ),
        ("tls =", "insecure = 1\ntls =", "insecure is a whole number, 1. Write insecure ="),
        ('tls = "certs"', "tls = true", "tls is a truth value, True. Write tls = "),
        ('tls = "certs"', "tls = 2026-01-01", "tls is a date or time"),
        ('tls = "certs"', 'tls = "a\\u0000b"', "embedded null byte"),
        ("tls =", 'load = "mine.py"\ntls =', "load must be a list of Python files"),
        ("[settings]", "[[settings]]", "settings is a list, [{"),
        ('app = "ssmw"', 'app = ["ssmw"]', "app must be a text"),
        ("workers = 3", "workers = 2147483648", "speak of 2147483648 workers, and [nodes] lists 4"),
        ("steps = 20", 'steps = "20"', "steps must be a whole number, got '20'"),
        ('worker-1 = "127.0.0.1:', 'worker-1 = "127.0.0.1:9', "a port of 1 to 65535, got '127"),
        ('worker-1 = "127.0.0.1:', 'worker-1 = "127.0.0.1:²', "needs an address like"),
        ('worker-1 = "127.0.0.1:', 'worker-1 = "127.0 .0.1:', "needs an address like"),
    ],
)
def test_a_cluster_file_with_mistakes_is_refused(cluster, old, new, message):

    cluster.path.write_text(cluster.path.read_text().replace(old, new))
    words = ["node", "--cluster", str(cluster.path), "--name", "worker-0"]
    done = invoke(words)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ('server-0 = ".*"', 'server-0 = "dials-in"', "which only workers may be: a server has to"),
        ('worker-1 = ".*"', 'worker-1 = "dials_in"', "needs an address like"),
        (
            '(?s)"ssmw"(.*)worker-1 = "[^"]*"',
            r'"aggregathor"\nlossy-workers = 1\1worker-1 = "dials-in"',
            "vectors travel as datagrams",
        ),
    ],
)
def test_who_cannot_dial_in_is_refused(cluster, pattern, replacement, message):
    rewrite(cluster, pattern, replacement)
    done = invoke(["node", "--cluster", str(cluster.path), "--name", "worker-0"])
    assert done.exit_code == 2
    assert message in done.stderr


def test_who_dials_in_cannot_listen(cluster):
    rewrite(cluster, 'worker-0 = ".*"', 'worker-0 = "dials-in"')
    make_certs(cluster)
    words = ["node", "--cluster", str(cluster.path), "--name", "worker-0"]
    done = invoke([*words, "--listen", "127.0.0.1:0"])
    assert done.exit_code == 2
    assert "worker-0 dials in, so it listens nowhere. Leave out --listen" in done.stderr


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "127.0.0.1", ":7000", "127.0.0.1:-1"])
def test_nobody_can_listen_on_what_is_no_address(cluster, listen):
    make_certs(cluster)
    words = ["node", "--cluster", cluster.path, "--name", "worker-0", f"--listen={listen}"]
    done = invoke(words)
    assert done.exit_code == 2
    assert "worker-0 needs an address like 10.0.0.2:7000" in done.stderr
    assert "a port of 0 to 65535" in done.stderr


# a name that our own reading of addresses does not know: it might be anywhere, and is this host
BEYOND = "LOCALHOST:0"


def test_without_certificates_the_keys_are_named_that_a_user_can_write(cluster):
    cluster.path.write_text(cluster.path.read_text().replace('tls = "certs"\n', ""))
    done = invoke(["node", "--cluster", cluster.path, "--name", "worker-0", "--listen", BEYOND])
    assert done.exit_code == 2
    assert 'write tls = "certs" at the top of' in done.stderr
    assert "or write insecure = true there" in done.stderr
    assert "insecure_ok" not in done.stderr


@pytest.mark.heavy
def test_listening_beyond_this_host_without_certificates_is_said_at_every_start(cluster):
    text = cluster.path.read_text().replace('tls = "certs"', "insecure = true")
    cluster.path.write_text(text)
    for _ in range(2):
        process = cluster("worker-0", "--listen", BEYOND)
        assert "listens on" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "WARNING: worker-0 listens on LOCALHOST:0 without certificates" in err
        assert "garfield certs" in err


@pytest.mark.heavy
def test_a_stranger_in_a_nodes_place_is_silence_and_no_lie_of_that_node(cluster, tmp_path):
    """On the server's port, with a certificate of an authority of its own."""
    from garfield.transport.certs import load, make
    from garfield.transport.grpc.transport import GrpcTransport
    from garfield.transport.identity import PeerAddress

    make_certs(cluster)
    make(tmp_path / "foreign", {"server-0": "server"})
    where = next(
        row.split('"')[1] for row in cluster.path.read_text().splitlines() if "server-0" in row
    )
    stranger = GrpcTransport(
        "server-0", {"worker-0": PeerAddress("127.0.0.1:1", "worker")}, listen=where,
        credentials=load(tmp_path / "foreign", "server-0"),
    )  # fmt: skip
    try:
        stranger.serve(Nothing())
        process = cluster("worker-0", "--out", "kept")
        assert "listens" in process.stdout.readline()
        until_said(process, "certificate is not from our authority")
        time.sleep(0.5)  # until it asks again
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    finally:
        stranger.close()
    summary = json.loads((tmp_path / "kept/summary.json").read_text())
    assert summary["liars"] == {}
    assert summary["silent"]["server-0"]["reason"] == "foreign certificate"


class Nothing:
    def answer(self, asker, key):
        raise AssertionError("a stranger is asked nothing")

    def watch(self, wake):
        pass


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


@pytest.mark.heavy
def test_a_port_in_use_is_named(cluster):
    make_certs(cluster)
    first = cluster("worker-0")
    assert "listens" in first.stdout.readline()
    second = cluster("worker-0")
    _, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 2
    assert "Cannot listen on 127.0.0.1" in err
