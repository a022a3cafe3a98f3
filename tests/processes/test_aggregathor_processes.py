"""AggregaThor in real processes, by real UDP: trained, resumed, and as a cluster with TLS."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from garfield.apps.settings import Settings
from garfield.launch.processes import Processes
from garfield.launch.simulate import simulate

GARFIELD = Path(sys.executable).parent / "garfield"
PATIENCE_S = 200.0  # for a machine that is busy otherwise
SMALL = Settings().updated(
    app="aggregathor", model="digits_mlp", data="digits", workers=7, lossy_workers=2, loss=0.3,
    steps=20, evaluate_every=10,
)  # fmt: skip
IMAGES = SMALL.updated(
    model="mnist_cnn", data="fashion-small", workers=19, lossy_workers=8, loss=0.1, batch=16
)


def trained(settings, by="memory"):
    events = []
    with Processes(settings, by=by) as nodes:
        nodes.start()
        nodes.run(events.append)
    return [event for event in events if event["event"] in ("step", "diverged")]


def filled(events):
    return [event.get("filled", {}) for event in events]


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("by", ["memory", "tcp", "tls"])
def test_processes_learn_and_lose_what_the_simulation_loses(by):
    real, simulated = trained(SMALL, by), []
    simulate(SMALL, simulated.append)
    assert real[-1]["accuracy"] > 0.8
    for here, there in zip(filled(real), filled(simulated), strict=True):
        for worker, share in there.items():
            assert here[worker] >= share - 1e-9  # more only if the machine itself lost some
    told = {worker for step in filled(real) for worker in step}
    assert told == {"worker-0", "worker-1"}


@pytest.mark.heavy
def test_by_real_udp_8_of_19_behind_10_percent_loss_are_survived():
    assert trained(IMAGES)[-1]["accuracy"] > 0.45


@pytest.mark.heavy
def test_by_real_udp_averaging_with_random_filling_is_led_astray():
    assert trained(IMAGES.updated(gar="average"))[-1]["accuracy"] < 0.2


@pytest.mark.heavy
def test_with_models_by_udp_too_and_liars_it_learns():
    mixed = SMALL.updated(
        lossy_models=True, fill="last", byzantine_workers=1, worker_attack="reverse", workers=9
    )
    assert trained(mixed)[-1]["accuracy"] > 0.8


def garfield(*words, cwd):
    return subprocess.run(
        [GARFIELD, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.heavy
def test_a_run_is_resumed_with_its_lossy_links(tmp_path):
    words = ("--app", "aggregathor", "--model", "digits_mlp", "--data", "digits", "--workers", 7,
             "--lossy-workers", 2, "--loss", 0.1)  # fmt: skip
    first = garfield("train", *words, "--steps", 4, "--out", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    second = garfield("train", "--resume", "run", "--steps", 8, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    steps = [event["step"] for event in events if event["event"] == "step"]
    assert steps == list(range(1, 9))
    assert any(event.get("filled") for event in events if event.get("step", 0) > 4)


def free_ports(count):
    """Free for TCP and UDP alike, a moment ago."""
    holders = []
    while len(holders) < count:
        tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp.bind(("127.0.0.1", 0))
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
            continue
        holders.append((tcp, udp))
    ports = [tcp.getsockname()[1] for tcp, _ in holders]
    for pair in holders:
        for holder in pair:
            holder.close()
    return ports


@pytest.mark.heavy
def test_nodes_of_a_cluster_with_certificates_have_udp_on_the_port_of_grpc(tmp_path):
    names = ("server-0", *(f"worker-{i}" for i in range(5)))
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    settings = (
        'app = "aggregathor"', 'model = "digits_mlp"', 'data = "digits"', "workers = 5",
        "steps = 10", "timeout-s = 10", "give-up-s = 10", "lossy-workers = 1", "loss = 0.2",
    )  # fmt: skip
    where = [f'{name} = "127.0.0.1:{port}"' for name, port in ports.items()]
    (tmp_path / "c.toml").write_text(
        "\n".join(['tls = "certs"', "[settings]", *settings, "[nodes]", *where])
    )
    assert garfield("certs", "--cluster", "c.toml", cwd=tmp_path).returncode == 0
    command = [GARFIELD, "node", "--cluster", "c.toml", "--threads", "1", "--name"]
    nodes = [
        subprocess.Popen(
            [*command, name, *(["--out", "kept"] if name == "server-0" else [])], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    try:
        told = nodes[0].communicate(timeout=PATIENCE_S)
        assert nodes[0].returncode == 0, told
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
    lines = (tmp_path / "kept" / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert max(event.get("step", 0) for event in events) == 10
    assert {name for event in events for name in event.get("filled", ())} == {"worker-0"}
