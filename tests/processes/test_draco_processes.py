"""DRACO as its users run it: real processes, and nodes started by hand with certificates."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from garfield.apps.settings import Settings
from garfield.launch.simulate import simulate
from garfield.runs.checkpoints import read_checkpoint

GARFIELD = Path(sys.executable).parent / "garfield"
PATIENCE_S = 200.0  # for a machine that is busy otherwise
SETTINGS = {
    "app": "draco", "model": "digits_mlp", "data": "digits", "workers": 3, "batch": 8,
    "f_workers": 1, "steps": 6, "evaluate_every": 0,
}  # fmt: skip


def flags(**changes):
    named = {**SETTINGS, **changes}
    return [
        word for name, value in named.items() for word in (f"--{name}".replace("_", "-"), value)
    ]


def kept(directory):
    return read_checkpoint(directory / "checkpoints/server-0-00000006.safetensors").vector


@pytest.fixture
def start(tmp_path):
    """Starts ``garfield …`` and reaps it."""
    started = []

    def start(*words):
        process = subprocess.Popen(
            [GARFIELD, *map(str, words)], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process):
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    return out


@pytest.mark.heavy
@pytest.mark.parametrize("code", ["repetition", "cyclic"])
def test_processes_under_attack_train_the_model_that_they_train_without(start, tmp_path, code):
    ended(start("train", *flags(code=code), "--out", "honest"))
    lying = flags(code=code, byzantine_workers=1, worker_attack="reverse")
    out = ended(start("train", *lying, "--out", "attacked"))
    assert "suspected   worker-2 6×" in out
    honest, attacked = kept(tmp_path / "honest"), kept(tmp_path / "attacked")
    if code == "repetition":
        assert attacked.tobytes() == honest.tobytes()
    assert np.linalg.norm(attacked - honest) <= 1e-6 * np.linalg.norm(honest)


@pytest.mark.heavy
def test_more_liars_than_allowed_for_are_an_error_with_a_reason(start):
    process = start("train", *flags(byzantine_workers=2, worker_attack="random"))
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "server-0 cannot decode step 0" in out
    assert "no vector was sent by 2 of them" in out
    assert "Traceback" not in out


def cluster_file(path, names, **settings):
    holders = [socket.socket() for _ in names]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    nodes = [
        f'{name} = "127.0.0.1:{holder.getsockname()[1]}"'
        for name, holder in zip(names, holders, strict=True)
    ]
    for holder in holders:
        holder.close()
    named = [
        f"{name} = {value!r}".replace("'", '"') for name, value in {**SETTINGS, **settings}.items()
    ]
    path.write_text("\n".join(['tls = "certs"', "[settings]", *named, "[nodes]", *nodes]))


@pytest.mark.heavy
def test_nodes_started_by_hand_with_tls_end_at_the_model_of_the_simulation(start, tmp_path):
    names = ("server-0", "worker-0", "worker-1", "worker-2")
    path, lie = tmp_path / "cluster.toml", {"byzantine_workers": 1, "worker_attack": "reverse"}
    cluster_file(path, names, code="cyclic", **lie)
    ended(start("certs", "--cluster", path))
    words = {name: ("--out", "kept") if name == "server-0" else () for name in names}
    nodes = [
        start("node", "--cluster", path, "--name", name, "--threads", "1", *words[name])
        for name in names
    ]
    ended(nodes[0])
    for worker in nodes[1:]:  # else they stay for give_up_s, for servers that are slower
        worker.send_signal(signal.SIGTERM)
        ended(worker)
    server = simulate(Settings.of(**SETTINGS, code="cyclic", simulate=True), lambda event: None)
    expected = np.empty(server["server-0"].model.size, np.float32)
    server["server-0"].model.read(expected)
    found = kept(tmp_path / "kept")
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
