"""TensorFlow in processes of their own: forked after it was imported, alone or beside torch."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from garfield.apps.settings import Settings
from garfield.launch.processes import Processes

GARFIELD = Path(sys.executable).parent / "garfield"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("0[123]-*/train_keras.py"))
PATIENCE_S = 280.0  # for a machine that is busy otherwise
SMALL = (
    "--model", "digits_mlp", "--data", "digits", "--workers", "5", "--batch", "16",
    "--byzantine-workers", "1", "--worker-attack", "reverse", "--timeout-s", "60",
    "--give-up-s", "120",
)  # fmt: skip


def garfield(tmp_path, *words):
    done = subprocess.run(
        [GARFIELD, *map(str, words)], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("framework", ["tensorflow", "torch,tensorflow"])
def test_a_run_learns_although_one_lies_goes_on_and_is_quiet(tmp_path, framework, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    words = ("train", *SMALL, "--framework", framework, "--gar", "multi-krum", "--steps", 40,
             "--out", "x")  # fmt: skip
    code, _, err = garfield(tmp_path, *words)
    assert code == 0, err
    lines = err.strip().splitlines()
    assert all(line.startswith("ssmw, multi-krum, 5 workers") for line in lines), err
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert summary["accuracy"] > 0.8
    assert summary["left_out"]["worker-4"] == 40
    assert summary["liars"] == {}
    code, _, err = garfield(tmp_path, "train", "--resume", "x", "--steps", 45)
    assert code == 0, err
    again = json.loads((tmp_path / "x/summary.json").read_text())
    assert (again["steps"], again["resumed_at"]) == (45, [40])
    assert not [*temporary.iterdir()]  # TensorFlow writes the source of what it traces


@pytest.mark.heavy
def test_several_servers_over_tls():
    settings = Settings.of(
        app="msmw", model="digits_mlp", data="digits", framework="torch,tensorflow", workers=3,
        servers=3, steps=8, batch=8, gar="median", f_workers=1, f_servers=1,
        timeout_s=60.0, give_up_s=120.0, evaluate_every=0,
    )  # fmt: skip
    told = []
    with Processes(settings, by="tls") as nodes:
        nodes.start()
        nodes.run(told.append)
    done = [event["node"] for event in told if event["event"] == "done"]
    assert "server-0" in done
    assert not [event for event in told if event["event"] in ("failed", "diverged")]


LIARS = {"workers": 6, "byzantine_workers": 1, "worker_attack": "reverse"}
BOTH = {**LIARS, "byzantine_servers": 1, "server_attack": "random"}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("app", "more"),
    [
        ("decentralized", LIARS),
        ("aggregathor", LIARS),
        ("draco", {**LIARS, "redundancy": 3}),
        ("guanyu", {**BOTH, "servers": 6}),
        ("liubei", {**BOTH, "servers": 4, "momentum": 0.0, "learning_rate": 0.5}),
    ],
)
def test_the_other_applications_learn_although_some_lie(app, more):
    settings = Settings.of(
        model="digits_mlp", data="digits", framework="tensorflow", steps=25, batch=16,
        timeout_s=60.0, give_up_s=120.0, evaluate_every=0,
    ).updated(app=app, **more)  # fmt: skip
    told = []
    with Processes(settings) as nodes:
        nodes.start()
        nodes.run(told.append)
    final = [e for e in told if e["event"] == "step" and e["node"] == settings.honest_servers[0]]
    assert final[-1]["step"] == 25
    assert final[-1]["accuracy"] > 0.7


@pytest.mark.heavy
def test_models_that_are_not_the_same_are_named_before_anything_is_computed(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n"
        "from garfield.models import MODELS\n"
        "def wider(classes, channels, seed):\n"
        "    import keras\n"
        "    layers = [keras.Input((1, 8, 8)), keras.layers.Flatten(),\n"
        "              keras.layers.Dense(65, 'relu'), keras.layers.Dense(classes)]\n"
        "    return keras.Sequential(layers)\n"
        "mlp = MODELS['digits_mlp']\n"
        "MODELS.add('mine', replace(mlp, name='mine', in_keras=wider))\n"
    )
    code, _, err = garfield(
        tmp_path, "--load", "mine.py", "train", *SMALL[2:], "--model", "mine",
        "--framework", "torch,tensorflow", "--steps", 2, "--out", "x",
    )  # fmt: skip
    assert code == 1
    assert "The models of server-0 and worker-1 differ: tensor 1 is 1.weight 64×64" in err
    assert "kernel 65×64 in worker-1 (4,810 and 4,885 numbers in all)" in err


@pytest.mark.heavy
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_listings_run_with_a_keras_model(example):
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"final accuracy (\S+)", done.stdout).group(1))
    assert accuracy > 0.8
