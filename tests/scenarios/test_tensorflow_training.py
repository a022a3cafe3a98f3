"""Every application trains with TensorFlow as with torch, simulated, and resumes."""

import json

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("torch")


from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, UnknownName
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.simulate import simulate
from tests.command import invoke
from tests.marks import heavy_but

TINY = Settings.of(
    model="digits_mlp", data="digits", framework="tensorflow", workers=7, steps=6, batch=8,
    evaluate_every=0, simulate=True,
)  # fmt: skip
APPS = {
    "vanilla": {},
    "ssmw": {"byzantine_workers": 1, "worker_attack": "little-is-enough"},
    "aggregathor": {"byzantine_workers": 1, "worker_attack": "random"},
    "crash-tolerant": {"servers": 2},
    "msmw": {"servers": 4, "byzantine_servers": 1, "server_attack": "reverse"},
    "guanyu": {"servers": 6, "byzantine_servers": 1, "server_attack": "reverse"},
    "liubei": {"servers": 4, "byzantine_servers": 1, "server_attack": "reverse"},
    "decentralized": {"byzantine_workers": 1, "worker_attack": "reverse", "contractions": 1},
    "draco": {"f_workers": 1, "workers": 6},
}


def ignore(event):
    pass


def model_of(server):
    found = np.empty(server.model.size + server.model.tail, np.float32)
    server.model.read(found)
    return found


def ended(settings, **run):
    servers = simulate(settings, ignore, **run)
    return {name: model_of(servers[name]) for name in settings.honest_servers}


@pytest.mark.parametrize("name", heavy_but(APPS, "ssmw", "msmw", "decentralized"))
def test_every_application_runs_and_the_same_seed_gives_the_same_bits(name):
    settings = TINY.updated(app=name, **APPS[name])
    first, again = ended(settings), ended(settings, threads=2)
    assert first.keys() == again.keys()
    for server, model in first.items():
        np.testing.assert_array_equal(model, again[server])
        assert np.isfinite(model).all()


def test_an_interrupted_run_ends_at_the_same_model(tmp_path):
    settings = TINY.updated(app="ssmw", momentum=0.0, learning_rate_decay=0.1, checkpoint_every=2)
    whole = ended(settings)

    def sink(event):
        if event["step"] == 4:
            raise KeyboardInterrupt

    checkpoints = NodeCheckpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        simulate(settings, sink, checkpoints=checkpoints)
    resumed = checkpoints.resumed(settings.server_names, settings.honest_servers)
    assert resumed.start.step >= 3
    np.testing.assert_array_equal(
        ended(settings, checkpoints=resumed)["server-0"], whole["server-0"]
    )
    assert not list(tmp_path.glob("*.pt"))  # nothing of torch


@pytest.mark.heavy
def test_lies_ruin_the_average_and_not_the_rule():
    lied = TINY.updated(byzantine_workers=2, worker_attack="reverse", steps=40, batch=16)
    [robust] = simulate(lied.updated(app="ssmw", gar="multi-krum"), ignore).values()
    assert robust.compute_accuracy() > 0.85
    [fooled] = simulate(lied.updated(app="vanilla"), ignore).values()
    assert fooled.compute_accuracy() < 0.6


def test_torch_and_tensorflow_workers_serve_one_server_and_go_where_torch_alone_goes():
    """The same batches, and gradients that differ by rounding only."""
    alone = TINY.updated(app="ssmw", framework="torch", gar="median", f_workers=2)
    mixed = alone.updated(framework="torch,tensorflow")
    assert [mixed.framework_of(name) for name in mixed.worker_names[:3]] == [
        "torch", "tensorflow", "torch",
    ]  # fmt: skip
    np.testing.assert_allclose(ended(mixed)["server-0"], ended(alone)["server-0"], atol=1e-5)


def test_a_server_of_tensorflow_takes_torchs_workers_too():
    settings = TINY.updated(
        app="ssmw", framework="tensorflow,torch", byzantine_workers=2, worker_attack="random",
        steps=40, batch=16,
    )  # fmt: skip
    [server] = simulate(settings, ignore).values()
    assert server.compute_accuracy() > 0.85


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"framework": "jax"}, "jax is not a framework. There are: tensorflow, torch"),
        ({"framework": "tensorflw"}, "Did you mean tensorflow"),
        ({"model": "resnet50", "data": "cifar10"}, "resnet50 is not written for TensorFlow"),
        ({"framework": "torch,tensorflow", "app": "decentralized"}, "start from the same weights"),
        ({"framework": "torch,tensorflow", "app": "draco"}, "bit for bit"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises((ConfigError, UnknownName), match=message):
        TINY.updated(**changes).check()


@pytest.mark.heavy
def test_the_command_trains_reports_and_goes_on(tmp_path):
    words = [
        "train", "--framework", "tensorflow", "--model", "digits_mlp", "--data", "digits",
        "--workers", "3", "--steps", "3", "--simulate", "--out", str(tmp_path / "x"),
    ]  # fmt: skip
    done = invoke(words)
    assert done.exit_code == 0, done.output
    more = invoke(["train", "--resume", str(tmp_path / "x"), "--steps", "5"])
    assert more.exit_code == 0, more.output
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert (summary["framework"], summary["steps"]) == ("tensorflow", 5)
    assert (tmp_path / "x/accuracy.png").exists()
    other = ["train", "--resume", str(tmp_path / "x"), "--steps", "7", "--framework", "torch"]
    refused = invoke(other)
    assert refused.exit_code == 2
    assert "keeps its framework: tensorflow, got torch" in refused.stderr
