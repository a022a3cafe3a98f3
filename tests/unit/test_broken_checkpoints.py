"""Checkpoints that are empty, cut, garbage or another's: told in a line, and gone back from."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

from garfield.core.errors import ConfigError
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.models import build
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from tests.command import invoke
from tests.marks import heavy_but

torch = pytest.importorskip("torch")

SMALL = ("--simulate", "--model", "digits_mlp", "--data", "digits", "--workers", "3")


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """A run of four steps that was saved after the second and the fourth."""
    path = tmp_path_factory.mktemp("run") / "x"
    words = ("--steps", 4, "--checkpoint-every", 2, "--evaluate-every", 0, "--out", path)
    assert invoke(["train", *SMALL, *words]).exit_code == 0
    return path


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_another_step(path):
    shutil.copy(path.with_name(path.name.replace("04", "02")), path)


HARMS = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"no checkpoint at all" * 9),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:700]),
    "a bit flipped": flipped,
    "of another step": of_another_step,
    "another's": lambda path: torch.save({"weights": torch.ones(3)}, path),
    "an array": lambda path: np.save(path.open("wb"), np.ones(3, np.float32)),
    "not there": lambda path: path.unlink(),
}


HARMED = [
    (harm, ending) for harm in HARMS for ending in ("safetensors", "pt")
    if (harm, ending) != ("of another step", "pt")  # plain SGD's state is always the same
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "ending"), heavy_but(HARMED, *HARMED[::4]))
def test_a_broken_checkpoint_is_named_and_the_one_before_is_taken(a_run, tmp_path, harm, ending):
    run = shutil.copytree(a_run, tmp_path / "x")
    path = run / f"checkpoints/server-0-00000004.{ending}"
    HARMS[harm](path)
    done = invoke(["train", "--resume", run, "--steps", 5])
    assert done.exit_code == 0, done.stderr
    assert '"resumed", "step": 2' in (run / "metrics.jsonl").read_text()
    if (harm, ending) != ("not there", "safetensors"):
        [told] = [line for line in done.stderr.splitlines() if str(path) in line]
        assert told.startswith(f"{path} cannot be read: ")
        assert told.endswith("The run goes on from step 2.")
    assert sorted(Checkpoints(run / "checkpoints").saved("server-0")) == [4, 5]  # and these
    for saved in Checkpoints(run / "checkpoints").saved("server-0").values():  # are whole
        read_checkpoint(saved)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["empty", "garbage", "another's"])
def test_where_none_is_whole_one_line_says_so(a_run, tmp_path, harm):
    run = shutil.copytree(a_run, tmp_path / "x")
    for step in (2, 4):
        HARMS[harm](run / f"checkpoints/server-0-0000000{step}.safetensors")
    refused = invoke(["train", "--resume", run, "--steps", 5])
    assert refused.exit_code == 2
    [line] = refused.stderr.strip().splitlines()
    assert line.startswith("Error: No checkpoint is left to resume from. ")
    assert "server-0-00000002.safetensors cannot be read" in line


def test_a_foreign_state_is_refused(a_run, tmp_path):
    run = shutil.copytree(a_run, tmp_path / "x")
    saved = read_checkpoint(run / "checkpoints/server-0-00000004.safetensors")
    assert set(saved.state) == {"optimizer"}
    foreign = replace(saved, state={"weights": torch.ones(3)})
    Checkpoints(run / "checkpoints").save("server-0", foreign)
    refused = invoke(["train", "--resume", run, "--steps", 5])
    assert (refused.exit_code, len(refused.stderr.strip().splitlines())) != (0, 0)
    assert "There is no weights in the state" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_any_reader_of_safetensors_finds_the_model_by_its_names(a_run):
    """Its state dict: no buffers that count are in this model."""
    tensors = load_file(a_run / "checkpoints/server-0-00000004.safetensors")
    model = build("digits_mlp")
    model.load_state_dict(tensors)
    vector = read_checkpoint(a_run / "checkpoints/server-0-00000004.safetensors").vector
    in_order = [each.reshape(-1) for each in model.state_dict().values()]
    assert torch.equal(torch.cat(in_order), torch.from_numpy(vector))
    velocity = load_file(a_run / "checkpoints/worker-1-velocity-00000004.safetensors")
    assert set(velocity) - set(tensors) == {"garfield.state.momentum"}


def test_parts_keep_their_names_and_shapes_unless_two_share_a_name(tmp_path):
    three, path = np.ones(3, np.float32), tmp_path / "server-0-00000001.safetensors"
    named = (("a", ()), ("b", (2, 1)))
    for layout, told in ((named, named), ([("a", (1,)), ("a", (2,))], ()), ((), ())):
        Checkpoints(tmp_path).save("server-0", Checkpoint(1, three, {}, layout))
        found = read_checkpoint(path)
        assert (found.layout, found.state, found.vector.tolist()) == (told, {}, [1, 1, 1])


def test_steps_of_a_past_that_was_given_up_do_not_push_out_new_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (40, 60):
        checkpoints.save("server-0", Checkpoint(step, np.ones(3, np.float32), {"a": np.ones(1)}))
    (tmp_path / ".server-0-00000070.safetensors.4711.part").write_bytes(b"PK half")
    (tmp_path / ".server-0-velocity-00000070.safetensors.4711.part").write_bytes(b"PK half")
    checkpoints.save("server-0", Checkpoint(10, np.ones(3, np.float32), {"a": np.ones(1)}))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".server-0-velocity-00000070.safetensors.4711.part", "server-0-00000010.safetensors",
    ]  # fmt: skip


def test_an_unreadable_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="No such file or directory"):
        read_checkpoint(tmp_path / "server-0-00000004.safetensors")


def test_a_server_that_is_started_again_within_a_run_passes_over_a_broken_one(tmp_path):
    for step in (4, 6):
        saved = Checkpoint(step, np.ones(3, np.float32), {"a": np.ones(1)})
        Checkpoints(tmp_path).save("server-0", saved)
    again = NodeCheckpoints(tmp_path).again("server-0")
    assert again.start.step == 6
    HARMS["empty"](tmp_path / "server-0-00000006.safetensors")
    assert NodeCheckpoints(tmp_path).again("server-0").start.step == 4
    HARMS["empty"](tmp_path / "server-0-00000004.safetensors")
    assert NodeCheckpoints(tmp_path).again("server-0").start.step == 0
