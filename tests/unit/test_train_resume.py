"""Interrupted and resumed, a simulated run ends at the same model, bit for bit."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, RunError
from garfield.launch.node_checkpoints import NodeCheckpoints, ResumePoint, WorkerCheckpoints
from garfield.launch.simulate import simulate
from garfield.launch.training import resumption
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from garfield.runs.run_directory import RunDirectory
from tests.command import invoke
from tests.marks import heavy_but

TINY = Settings.of(
    gar="multi-krum",  # the default rule remembers its last aggregate, and begins anew
    model="digits_mlp", data="digits", workers=5, steps=8, batch=8, momentum=0.9,
    byzantine_workers=1, worker_attack="random", evaluate_every=0, simulate=True,
)  # fmt: skip
APPS = {
    "vanilla": {"byzantine_workers": 0},
    "ssmw": {},
    "crash-tolerant": {"servers": 2},
    "msmw": {"servers": 3, "byzantine_servers": 1, "server_attack": "reverse"},
    "decentralized": {"contractions": 1},
    "liubei": {
        "servers": 4,
        "byzantine_servers": 1,
        "server_attack": "reverse",
        "gather_every": 3,
        "momentum": 0.0,
    },
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


@pytest.mark.slow
@pytest.mark.parametrize("app_name", APPS)
@pytest.mark.parametrize("every", heavy_but([0, 2], 2))
def test_every_application_ends_at_the_same_model(tmp_path, app_name, every):
    settings = TINY.updated(app=app_name, checkpoint_every=every, **APPS[app_name])
    whole = models(simulate(settings, ignore))
    checkpoints = NodeCheckpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        simulate(settings, interrupted_at(5), checkpoints=checkpoints)
    resumed = checkpoints.resumed(settings.server_names, settings.honest_servers)
    assert 4 <= resumed.start.step <= 5
    parts = models(simulate(settings, ignore, checkpoints=resumed))
    for name in settings.honest_servers:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_only_the_last_two_of_every_node_are_kept(tmp_path):
    simulate(TINY.updated(checkpoint_every=2), ignore, checkpoints=NodeCheckpoints(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    of_workers = [f"worker-{i}-velocity-0000000{t}.safetensors" for i in range(5) for t in (6, 8)]
    assert names == [
        "server-0-00000006.pt", "server-0-00000006.safetensors",
        "server-0-00000008.pt", "server-0-00000008.safetensors", *of_workers,
    ]  # fmt: skip


def a_checkpoint(step):
    import torch

    return Checkpoint(step, np.full(3, step, np.float32), {"rate": torch.ones(1)})


@pytest.mark.parametrize("broken", ["safetensors.numpy.save_file", "torch.save"])
@pytest.mark.parametrize("failure", [OSError("No space left on device"), KeyboardInterrupt()])
def test_one_whose_writing_breaks_off_takes_nothing_from_those_before(
    tmp_path, monkeypatch, broken, failure
):
    checkpoints = Checkpoints(tmp_path)
    for step in (2, 4):
        checkpoints.save("server-0", a_checkpoint(step))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(*given, **named):
        where = next(each for each in given if hasattr(each, "write") or hasattr(each, "suffix"))
        file = where if hasattr(where, "write") else where.open("wb")
        file.write(b"PK half a file")
        file.flush()
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(broken, half)
        with pytest.raises((RunError, KeyboardInterrupt)):
            checkpoints.save("server-0", a_checkpoint(6))
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) <= {"server-0-00000006.pt"}  # no .safetensors tells of it
    resumed = NodeCheckpoints(tmp_path).resumed(["server-0"], ["server-0"])
    assert resumed.start.step == 4
    assert read_checkpoint(resumed.start.files["server-0"]).vector.tolist() == [4, 4, 4]
    for step in (8, 10):
        checkpoints.save("server-0", a_checkpoint(step))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        f"server-0-{step:08}.{kind}" for step in (8, 10) for kind in ("pt", "safetensors")
    ]


def test_arrays_come_back_in_their_shapes_a_single_number_too(tmp_path):
    state = {
        "steps": np.int64(7), "rate": np.array(0.5), "none": np.empty((0, 3), np.float32),
        "turned": np.arange(6).reshape(2, 3).T,
    }  # fmt: skip
    layout = [("scale", ()), ("weight", (2, 3))]
    Checkpoints(tmp_path).save("server-0", Checkpoint(2, np.ones(7, np.float32), state, layout))
    found = read_checkpoint(tmp_path / "server-0-00000002.safetensors")
    assert not (tmp_path / "server-0-00000002.pt").exists()
    assert {name: (part.shape, part.dtype) for name, part in found.state.items()} == {
        name: (np.shape(part), part.dtype) for name, part in state.items()
    }
    assert all(np.array_equal(found.state[name], part) for name, part in state.items())
    assert list(found.layout) == layout


def test_what_a_killed_writer_leaves_is_not_taken_for_a_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("server-0", a_checkpoint(4))
    (tmp_path / ".server-0-00000006.safetensors.4711.part").write_bytes(b"PK half")
    (tmp_path / "server-0-00000006.pt").write_bytes(b"PK whole, but without its .safetensors")
    assert list(checkpoints.saved("server-0")) == [4]
    assert NodeCheckpoints(tmp_path).resumed(["server-0"], ["server-0"]).start.step == 4


def told_at_resume(settings, directory):
    """The servers after a resumed run, and what was told of velocities."""
    events = []
    checkpoints = NodeCheckpoints(directory).resumed(settings.server_names, settings.honest_servers)
    servers = simulate(settings, events.append, checkpoints=checkpoints)
    return models(servers), [e for e in events if e["event"] == "no-velocity"]


@pytest.mark.slow
@pytest.mark.parametrize("app_name", ["ssmw", "decentralized"])
@pytest.mark.parametrize("harm", ["missing", "damaged", "of another size"])
def test_without_its_velocity_a_worker_starts_from_zero_and_says_so(tmp_path, app_name, harm):
    settings = TINY.updated(app=app_name, steps=3, **APPS[app_name])
    simulate(settings, ignore, checkpoints=NodeCheckpoints(tmp_path))
    settings = settings.updated(steps=5)
    name = settings.worker_names[0]
    whole, nothing = told_at_resume(settings, shutil.copytree(tmp_path, tmp_path / "whole"))
    assert nothing == []
    path = tmp_path / f"{name}-velocity-00000003.safetensors"
    if harm == "of another size":
        Checkpoints(tmp_path).save(
            f"{name}-velocity", Checkpoint(3, np.ones(7, np.float32), {"momentum": np.float64(0.9)})
        )
    elif harm == "damaged":
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.unlink()
    found, told = told_at_resume(settings, tmp_path)
    assert [(e["node"], e["step"]) for e in told] == [(name, 3)]
    assert "without its momentum" in told[0]["error"]
    leader = settings.honest_servers[0]
    assert np.isfinite(found[leader]).all()
    assert not np.array_equal(found[leader], whole[leader])


def test_a_new_run_and_one_without_momentum_say_nothing_of_velocities(tmp_path):
    events = []
    simulate(TINY, events.append, checkpoints=NodeCheckpoints(tmp_path / "new"))
    plain = TINY.updated(momentum=0.0, steps=3)
    simulate(plain, events.append, checkpoints=NodeCheckpoints(tmp_path / "plain"))
    assert [path for path in (tmp_path / "plain").iterdir() if "velocity" in path.name] == []
    _, told = told_at_resume(plain.updated(steps=4), tmp_path / "plain")
    assert told == []
    assert not any(event["event"] == "no-velocity" for event in events)


class FollowingWorker:
    """As much of a worker as its checkpoints look at."""

    name, momentum = "worker-3", 0.9
    model = SimpleNamespace(size=2, layout=[("weight", (2,))])

    def __init__(self):
        self.step, self.velocities = 0, {}

        self.first_velocity = None

    def computes(self, step=None):
        """One gradient, at the step that it is told by its servers meanwhile."""
        self.step = self.step if step is None else step
        known, mine = self.velocities, np.full(2, self.step, np.float32)
        last = known[max(known)] if known else self.first_velocity(self.step)
        self.velocities = {self.step: last, self.step + 1: mine}
        self.step += 1


def checkpoints_of(worker, directory, told, **when):
    return WorkerCheckpoints(
        NodeCheckpoints(directory), worker, told.append, **{"every": 3, "total": 100, **when}
    )


def test_a_worker_that_is_told_its_step_by_its_servers_takes_up_the_velocity_of_that_step(tmp_path):
    """As a node of a cluster: it knows no step when it is started again."""
    before, told = FollowingWorker(), []
    saved = checkpoints_of(before, tmp_path, told)
    for _ in range(8):
        saved.between_steps()
        before.computes()
    saved.interrupted()
    assert sorted(Checkpoints(tmp_path).saved("worker-3-velocity")) == [7, 8]

    again = FollowingWorker()
    checkpoints_of(again, tmp_path, told).between_steps()
    again.computes(step=7)  # its servers were stopped a step earlier
    assert again.velocities[7].tolist() == [6.0, 6.0]
    assert list(Checkpoints(tmp_path).saved("worker-3-velocity")) == [7]  # 8 will be done again
    assert told == []


def test_a_worker_that_comes_back_elsewhere_says_so_once(tmp_path):
    before, told = FollowingWorker(), []
    saved = checkpoints_of(before, tmp_path, told)
    for _ in range(4):
        saved.between_steps()
        before.computes()
    again = FollowingWorker()
    saved = checkpoints_of(again, tmp_path, told)
    for step in (9, 10):
        saved.between_steps()
        again.computes(step)
    assert [(e["node"], e["step"]) for e in told] == [("worker-3", 9)]


def test_a_worker_of_a_new_run_has_no_first_velocity_and_says_nothing(tmp_path):
    new, told = FollowingWorker(), []
    checkpoints_of(new, tmp_path / "nothing", told).between_steps()
    new.computes(step=5)  # started late, and told so
    assert new.velocities[5] is None
    assert told == []


def test_peers_a_step_apart_resume_at_the_newer_step_with_all_velocities(tmp_path):
    """The first honest node was stopped while it waited, another had gone on already."""
    for name, step in (("node-0", 4), ("node-1", 5), ("node-2", 5)):
        Checkpoints(tmp_path).save(name, a_checkpoint(step))
    nodes = ["node-0", "node-1", "node-2"]
    start = NodeCheckpoints(tmp_path).resumed(nodes, nodes[:2]).start
    assert start.step == 5
    assert [start.files[name].stem for name in nodes] == [
        "node-1-00000005", "node-1-00000005", "node-2-00000005",
    ]  # fmt: skip


def test_a_server_without_a_file_starts_from_the_first_honest_one(tmp_path):
    for name, step in (("server-0", 4), ("server-0", 6), ("server-1", 6), ("server-2", 4)):
        Checkpoints(tmp_path).save(name, Checkpoint(step, np.zeros(3, np.float32), {}))
    servers = ["server-0", "server-1", "server-2"]
    found = NodeCheckpoints(tmp_path).resumed(servers, servers)
    assert found.start.step == 6
    assert [found.start.files[name].name for name in servers] == [
        f"{name}-00000006.safetensors" for name in ("server-0", "server-1", "server-0")
    ]


@pytest.mark.parametrize(
    ("steps", "f", "expected"),
    [
        ((20, 50, 50, 50), 1, 50),  # the first is a laggard
        ((50, 20, 20, 20), 1, 20),  # one alone may be a liar
        ((50, 49, 48, 20), 1, 49),
        ((50, 49, 48, 20), 0, 50),
    ],
)
def test_a_run_resumes_from_the_newest_step_that_f_and_one_more_servers_have(
    tmp_path, steps, f, expected
):
    servers = [f"server-{i}" for i in range(len(steps))]
    for name, step in zip(servers, steps, strict=True):
        Checkpoints(tmp_path).save(name, a_checkpoint(step))
    start = NodeCheckpoints(tmp_path).resumed(servers, servers, f).start
    assert start.step == expected
    assert {path.stem.rpartition("-")[2] for path in start.files.values()} == {f"{expected:08}"}


def test_fewer_checkpoints_than_f_and_one_are_refused_with_the_remedy(tmp_path):
    Checkpoints(tmp_path).save("server-0", a_checkpoint(20))
    servers = ["server-0", "server-1", "server-2"]
    with pytest.raises(ConfigError, match=r"1 of 2 servers .* Lower --f-servers"):
        NodeCheckpoints(tmp_path).resumed(servers, servers, 1)


def test_msmw_with_a_lone_server_ahead_is_resumed_where_the_others_are(tmp_path):
    settings = TINY.updated(app="msmw", servers=4, f_servers=1, checkpoint_every=2, steps=4)
    whole = models(simulate(settings.updated(steps=8), ignore))
    simulate(settings, ignore, checkpoints=NodeCheckpoints(tmp_path))
    ahead = Checkpoint(6, np.full_like(whole["server-0"], 1e6), {})  # a lie, or a broken disk
    Checkpoints(tmp_path).save("server-3", ahead)
    run = RunDirectory(tmp_path.parent / "run")
    (run.path).mkdir()
    tmp_path.rename(run.checkpoints)
    again = settings.updated(steps=8)
    checkpoints = resumption(again, run, settings)
    assert checkpoints.start.step == 4
    parts = models(simulate(again, ignore, checkpoints=checkpoints))
    for name in settings.honest_servers:
        np.testing.assert_array_equal(whole[name], parts[name])
    left = {path.name for path in run.checkpoints.glob("server-3-*.safetensors")}
    assert left == {"server-3-00000006.safetensors", "server-3-00000008.safetensors"}  # done again


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
    NodeCheckpoints(tmp_path).resumed(["server-0"], ["server-0"]).restore(new)
    for holder in (old, new):
        holder.model.step(np.full(8, 2.0, np.float32))
    both = [models({"x": holder})["x"] for holder in (old, new)]
    np.testing.assert_array_equal(*both)
    assert new.step == 1


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused(tmp_path):
    start = ResumePoint(3, {"server-0": tmp_path / "server-0-00000003.safetensors"})
    checkpoints = NodeCheckpoints(tmp_path, start)
    Checkpoints(tmp_path).save("server-0", Checkpoint(3, np.zeros(3, np.float32), {}))
    with pytest.raises(ConfigError, match="holds a model of 3 numbers"):
        simulate(TINY, ignore, checkpoints=checkpoints)
    checkpoints.start.files["server-0"].write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="cannot be read"):
        simulate(TINY, ignore, checkpoints=checkpoints)


@pytest.mark.slow
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
