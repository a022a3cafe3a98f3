"""Interrupted and resumed, a simulated run ends at the same model, bit for bit."""

import json

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.launch.server_checkpoints import ResumePoint, ServerCheckpoints
from garfield.launch.simulate import simulate
from garfield.runs.checkpoints import Checkpoint, Checkpoints
from tests.command import invoke

TINY = Settings.of(
    model="digits_mlp", data="digits", workers=5, steps=8, batch=8, momentum=0.0,
    byzantine_workers=1, worker_attack="random", evaluate_every=0, simulate=True,
)  # fmt: skip
APPS = {
    "vanilla": {"byzantine_workers": 0},
    "ssmw": {},
    "crash-tolerant": {"servers": 2},
    "msmw": {"servers": 3, "byzantine_servers": 1, "server_attack": "reverse"},
    "decentralized": {"contractions": 1},
    "liubei": {"servers": 4, "byzantine_servers": 1, "server_attack": "reverse", "gather_every": 3},
}


def ignore(event):
    pass


def models(servers):
    found = {}
    for name, server in servers.items():
        found[name] = np.empty(server.model.size + server.model.tail, np.float32)
        server.model.read(found[name])
    return found


def interrupted_at(step):
    def sink(event):
        if event["step"] == step:
            raise KeyboardInterrupt

    return sink


@pytest.mark.parametrize("app_name", APPS)
@pytest.mark.parametrize("every", [0, 2])
def test_every_application_ends_at_the_same_model(tmp_path, app_name, every):
    settings = TINY.updated(app=app_name, checkpoint_every=every, **APPS[app_name])
    whole = models(simulate(settings, ignore))
    checkpoints = ServerCheckpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        simulate(settings, interrupted_at(5), checkpoints=checkpoints)
    resumed = checkpoints.resumed(settings.server_names, settings.honest_servers)
    assert 4 <= resumed.start.step <= 5
    parts = models(simulate(settings, ignore, checkpoints=resumed))
    for name in settings.honest_servers:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_only_the_last_two_are_kept_and_nothing_half_written(tmp_path):
    simulate(TINY.updated(checkpoint_every=2), ignore, checkpoints=ServerCheckpoints(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "server-0-00000006.npz", "server-0-00000006.pt",
        "server-0-00000008.npz", "server-0-00000008.pt",
    ]  # fmt: skip


def test_a_server_without_a_file_starts_from_the_first_honest_one(tmp_path):
    for name, step in (("server-0", 4), ("server-0", 6), ("server-1", 6), ("server-2", 4)):
        Checkpoints(tmp_path).save(name, Checkpoint(step, np.zeros(3, np.float32), {}))
    servers = ["server-0", "server-1", "server-2"]
    found = ServerCheckpoints(tmp_path).resumed(servers, servers)
    assert found.start.step == 6
    assert [found.start.files[name].name for name in servers] == [
        "server-0-00000006.npz", "server-1-00000006.npz", "server-0-00000006.npz",
    ]  # fmt: skip


def test_names_that_begin_alike_are_not_mixed_up(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("server-0", Checkpoint(3, np.zeros(3, np.float32), {}))
    checkpoints.save("server-0-1", Checkpoint(9, np.zeros(3, np.float32), {}))
    assert list(checkpoints.saved("server-0")) == [3]


def test_optimizer_state_comes_back(tmp_path):
    import torch

    from garfield.adapters.torch_adapter import TorchAdapter

    class Holder:
        def __init__(self):
            module = torch.nn.Linear(3, 2)
            sgd = torch.optim.Adam(module.parameters(), lr=0.1)
            self.name, self.step, self.model = "server-0", 0, TorchAdapter(module, optimizer=sgd)

    old, new = Holder(), Holder()
    old.model.step(np.ones(8, np.float32))
    vector = np.empty(8, np.float32)
    old.model.read(vector)
    Checkpoints(tmp_path).save("server-0", Checkpoint(1, vector, old.model.state()))
    ServerCheckpoints(tmp_path).resumed(["server-0"], ["server-0"]).restore(new)
    for holder in (old, new):
        holder.model.step(np.full(8, 2.0, np.float32))
    both = [models({"x": holder})["x"] for holder in (old, new)]
    np.testing.assert_array_equal(*both)
    assert new.step == 1


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused(tmp_path):
    start = ResumePoint(3, {"server-0": tmp_path / "server-0-00000003.npz"})
    checkpoints = ServerCheckpoints(tmp_path, start)
    Checkpoints(tmp_path).save("server-0", Checkpoint(3, np.zeros(3, np.float32), {}))
    with pytest.raises(ConfigError, match="holds a model of 3 numbers"):
        simulate(TINY, ignore, checkpoints=checkpoints)
    checkpoints.start.files["server-0"].write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="cannot be read"):
        simulate(TINY, ignore, checkpoints=checkpoints)


def test_the_command_goes_on_with_more_steps(tmp_path):
    def garfield(*words):
        return invoke(["train", *(str(word) for word in words)])

    out = tmp_path / "x"
    small = ("--simulate", "--model", "digits_mlp", "--data", "digits", "--workers", 3)
    assert garfield(*small, "--steps", 3, "--out", out).exit_code == 0
    refused = garfield("--resume", out)
    assert refused.exit_code == 2
    assert "Give more --steps" in refused.stderr
    other = garfield("--resume", out, "--model", "mnist_cnn", "--data", "fashion-small")
    assert "A resumed run keeps its model" in other.stderr
    done = garfield("--resume", out, "--steps", 5)
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["steps"], summary["resumed_at"]) == (5, [3])
    told = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    assert [e["step"] for e in told if e["event"] == "step"] == [1, 2, 3, 4, 5]
