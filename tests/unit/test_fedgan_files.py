"""What a federated GAN leaves behind, goes on from, and reads."""

import json
import threading
from contextlib import closing

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from garfield.cli.app import run
from garfield.core.config import made, read_toml, values_of
from garfield.core.errors import ConfigError, InputError
from garfield.fedgan import training
from garfield.fedgan.image_data import dataset_for, devices_of, read_folder
from garfield.fedgan.nodes.apart import serve_apart
from garfield.fedgan.nodes.process_training import ProcessTraining
from garfield.fedgan.pictures import write_grid
from garfield.fedgan.saved_weights import LearningStates, read_generator
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import open_state_database
from garfield.runs.run_directory import RunDirectory

SMALL = {
    "gan": "lsgan(width=0.0625)", "data": "fashion-small", "devices": 6, "fraction": 0.34,
    "partition": "iid", "local_steps": 2, "batch": 8, "rounds": 4, "evaluate_every": 2,
    "checkpoint_every": 2, "judge": "none",
}  # fmt: skip


def train(path, resume=False, tell=lambda event: None, **other):
    settings = made(FedganSettings, SMALL | other)
    return training.train(settings, RunDirectory(path), tell, resume=resume)


def flags(**other):
    given = SMALL | other
    return [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Cut(Exception):  # noqa: N818
    """Somebody pulled the plug."""


def cut_after(kind, number):
    def tell(event):
        if event["event"] == kind and event["round"] == number:
            raise Cut

    return tell


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    return path, train(path)


def test_a_run_leaves_config_metrics_images_checkpoints_and_weights(whole):
    path, _ = whole
    kinds = [event["event"] for event in RunDirectory(path).events()]
    assert kinds == ["began", "round", "round", "evaluated", "round", "round", "evaluated", "done"]
    assert sorted(p.name for p in (path / "images").iterdir()) == [
        "round-00000002.png", "round-00000004.png",
    ]  # fmt: skip
    assert sorted(LearningStates(path / "checkpoints").saved()) == [2, 4]
    assert "gan = " in (path / "config.toml").read_text()
    with Image.open(path / "images" / "round-00000004.png") as grid:
        assert grid.size == (8 * 30 + 2, 8 * 30 + 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number", "other"),
    [
        pytest.param("round", 0, {}, marks=pytest.mark.heavy),
        ("round", 2, {}),
        pytest.param("evaluated", 2, {}, marks=pytest.mark.heavy),
        pytest.param("round", 2, {"optimizer_state": "average"}, marks=pytest.mark.heavy),
        ("round", 2, {"gar": "centered-clipping", "fraction": 0.5, "f": 1}),
        (
            "round",
            2,
            {"sampling": "random", "attack": "gaussian", "liars": 2, "noise_epsilon": 1.0},
        ),
    ],
    ids=["first round", "no checkpoint", "evaluation", "optimizers", "remembering rule", "random"],
)
def test_a_resumed_run_ends_at_the_same_bits(tmp_path, kind, number, other):
    expected = train(tmp_path / "whole", **other)
    with pytest.raises(Cut):
        train(tmp_path / "cut", tell=cut_after(kind, number), **other)
    found = train(tmp_path / "cut", resume=True, **other)
    assert same(found.server.state, expected.server.state)
    assert found.server.history.asked.tolist() == expected.server.history.asked.tolist()
    grids = [
        (tmp_path / name / "images/round-00000004.png").read_bytes() for name in ("whole", "cut")
    ]
    assert grids[0] == grids[1]


def test_more_rounds_may_be_added_but_nothing_else_changed(tmp_path):
    train(tmp_path, rounds=2)
    with pytest.raises(ConfigError, match=r"batch was 8 and cannot become 9 in a resumed run"):
        train(tmp_path, resume=True, batch=9)
    longer = train(tmp_path, resume=True, rounds=4)
    assert longer.server.round == 4


def test_a_resumed_run_may_wait_longer_for_its_processes(tmp_path):
    def settings_of(**other):
        return made(
            FedganSettings, SMALL | {"devices": 2, "fraction": 1, "simulate": False} | other
        )

    def restore(**other):
        training = ProcessTraining(settings_of(**other), tmp_path)
        with closing(training.database):
            training.restore(RunDirectory(tmp_path))

    with RunDirectory(tmp_path) as directory:
        directory.open(values_of(settings_of()))
    restore(round_timeout_s=300.0, lease_s=5.0, servers=2)
    with pytest.raises(ConfigError, match="batch was 8 and cannot become 9"):
        restore(batch=9)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, whole):
    train(tmp_path)
    (tmp_path / "checkpoints" / "round-00000004.safetensors").write_bytes(b"nonsense")
    found = train(tmp_path, resume=True)
    assert same(found.server.state, whole[1].server.state)


@pytest.mark.slow
def test_what_cannot_be_resumed_says_why(tmp_path):
    train(tmp_path, rounds=2)
    checkpoint = tmp_path / "checkpoints" / "round-00000002.safetensors"
    state = load_file(checkpoint)
    save_file({name: tensor for name, tensor in state.items() if "dense" not in name}, checkpoint)
    with pytest.raises(ConfigError, match="cannot be resumed: The checkpoint sent another state"):
        train(tmp_path, resume=True)
    save_file(state, checkpoint)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match="does not hold all 2 rounds"):
        train(tmp_path, resume=True)
    checkpoint.write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be read"):
        train(tmp_path, resume=True)


# -- weights ----------------------------------------------------------------------------------


def test_weights_load_without_this_library(whole):
    """Into a module that is written here from scratch, by its names alone."""
    path, federation = whole

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(100, 8 * 49)
            self.layers = nn.Sequential(
                nn.BatchNorm2d(8), nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 3, padding=1),
                nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2),
                nn.Conv2d(8, 4, 3, padding=1), nn.BatchNorm2d(4), nn.LeakyReLU(0.2),
                nn.Conv2d(4, 1, 3, padding=1), nn.Tanh(),
            )  # fmt: skip

        def forward(self, z):
            return self.layers(self.dense(z).view(-1, 8, 7, 7))

    plain = Plain()
    plain.load_state_dict(load_file(path / "weights" / "generator.safetensors"))
    z = torch.randn(6, 100, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        images = plain.eval()(z)
    torch.testing.assert_close(images, federation.images(6, seed=3), atol=1e-5, rtol=0)


def test_weights_say_what_they_are_of(whole, tmp_path):
    path, federation = whole
    gan, generator, about = read_generator(path / "weights" / "generator.safetensors")
    assert (about.gan, about.image, about.round) == ("lsgan(width=0.0625)", (1, 28, 28), 4)
    assert about.classes[0] == "t-shirt"
    z = gan.noise(3, torch.Generator().manual_seed(1))
    assert torch.equal(gan.generate(generator, z), federation.images(3, seed=1))
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="does not say which networks"):
        read_generator(tmp_path / "other.safetensors")


# -- folders ----------------------------------------------------------------------------------


def pictures(folder, kinds, count=10, size=(16, 16), mode="L"):
    for number, kind in enumerate(kinds):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for at in range(count):
            colour = 10 * number + at if mode == "L" else (number, at, 200)
            Image.new(mode, size, colour).save(folder / kind / f"{at:02}.png")


def test_a_folder_of_folders_is_a_class_each_and_a_tenth_is_held_out(tmp_path):
    pictures(tmp_path, ["cat", "dog"])
    found = read_folder(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.image == (1, 16, 16)
    assert (len(found.x_train), len(found.x_test)) == (18, 2)
    assert found.x_train[3, 0, 0] == 3
    assert found.y_train.tolist() == [0] * 9 + [1] * 9


def test_one_folder_is_one_class_and_one_coloured_image_makes_all_so(tmp_path):
    pictures(tmp_path, [""], mode="L")
    assert read_folder(tmp_path).classes == (tmp_path.name,)
    Image.new("RGB", (16, 16), (1, 2, 3)).save(tmp_path / "99.png")
    assert read_folder(tmp_path).image == (3, 16, 16)


def test_images_are_scaled_and_cropped_to_the_side_that_was_asked_for(tmp_path):
    pictures(tmp_path, ["a"], size=(90, 40), mode="RGB")
    with pytest.raises(InputError, match=r"90×40 are too large.*--image-side 64"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, side=32).image == (3, 32, 32)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: Image.new("L", (8, 16)).save(folder / "a" / "z.png"), "is 8×16, "),
        (lambda folder: (folder / "a" / "z.png").write_bytes(b"no"), "cannot be read as an image"),
        (lambda folder: (folder / "empty").mkdir(), "no image in empty"),
        (lambda folder: [p.unlink() for p in (folder / "a").glob("0[0-4]*")], "holds 5 images"),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_used_say_why(tmp_path, spoil, message):
    pictures(tmp_path, ["a"])
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        read_folder(tmp_path)


def test_no_folder_at_all_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        dataset_for(made(FedganSettings, {"data": f"folder:{tmp_path}/none"}))


def test_devices_share_one_array_and_get_what_the_engine_says():
    settings = made(FedganSettings, {"devices": 20, "max_class": 3, "max_samples": 50})
    devices = devices_of(dataset_for(settings), settings)
    assert len({device.images.data_ptr() for device in devices}) == 1
    assert all(1 <= np.count_nonzero(device.class_counts(10)) <= 3 for device in devices)
    assert max(max(device.class_counts(10)) for device in devices) <= 50


# -- commands ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_and_sample_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "run"
    judged = flags(judge="auto", judged_images=100, data_dir=tmp_path / "data")
    assert run(["fedgan", "train", "--simulate", "--out", str(out), "--json", *judged]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["rounds"] == 4
    assert summary["bytes_per_device"] > 0
    assert summary["time_s"] > 0
    assert summary["fid"] > 50  # nothing is learned in four rounds of two iterations
    assert (
        summary["fid_label"] == "FID (small CNN; only 100 generated images; only 2,000 real images)"
    )
    assert 0 <= summary["modes"] <= 10
    assert 0 < summary["accuracy_trained_on_generated"] < 0.9
    assert {"seen.png", "traffic.png", "fid.png"} <= {path.name for path in out.iterdir()}
    assert run(["fedgan", "sample", str(out), "--n", "7", "--seed", "3"]) == 0
    assert "7 images of round 4" in capsys.readouterr().out
    assert len(list((out / "samples").glob("0*.png"))) == 7
    with Image.open(out / "samples" / "0003.png") as picture:
        assert picture.size == (28, 28)


@pytest.mark.heavy
def test_conditional_images_are_drawn_by_class_from_a_folder_in_colour(tmp_path, capsys):
    pictures(tmp_path / "in", ["cat", "dog"], size=(20, 20), mode="RGB")
    out = tmp_path / "run"
    given = flags(
        data=f"folder:{tmp_path}/in", image_side=16, devices=2, fraction=0.5,
        rounds=6, local_steps=6,  # after one of two, a class is less than a shade of grey
    )  # fmt: skip
    assert run(["fedgan", "train", "--simulate", "--conditional", "--out", str(out), *given]) == 0
    assert "6 in " in capsys.readouterr().out
    for label in ("cat", "dog"):
        target = str(tmp_path / label)
        assert (
            run(["fedgan", "sample", str(out), "--n", "4", "--label", label, "--out", target]) == 0
        )
    grids = [(tmp_path / label / "grid.png").read_bytes() for label in ("cat", "dog")]
    assert grids[0] != grids[1]
    assert run(["fedgan", "sample", str(out), "--label", "dgo"]) == 2
    assert "Did you mean dog?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fraction", "0.01"], "it takes one at least"),
        (["--gan", "dcgan"], "images of 64×64, not 28×28"),
        (["--gan", "lsgann"], "Did you mean lsgan?"),
        (["--data", "fashoin"], "is not a data set"),
        (
            ["--devices", "2", "--partition", "skewed", "--fraction", "0.5"],
            "No device has a sample",
        ),
        (["--gar", "bulyan", "--f", "2"], "bulyan needs n >= 11"),
        (["--rounds", "0"], "rounds must be at least 1"),
        (["--devices", "9999"], "cannot give each of 9999 workers one of 2000"),
    ],
)
def test_wrong_settings_are_refused_and_leave_nothing_behind(tmp_path, capsys, words, message):
    out = tmp_path / "run"
    assert run(["fedgan", "train", "--simulate", "--out", str(out), *flags(), *words]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_more_devices_than_one_machine_holds_are_simulated_and_a_run_goes_on_so(tmp_path, capsys):
    out = tmp_path / "run"
    given = flags(devices=17, fraction=0.1, rounds=1, local_steps=1)
    assert run(["fedgan", "train", "--out", str(out), *given]) == 0
    assert "17 devices are simulated in this process" in capsys.readouterr().err
    assert read_toml(out / "config.toml")["simulate"] is True
    assert run(["fedgan", "train", "--resume", str(out), "--rounds", "2"]) == 0
    told = capsys.readouterr()
    assert "are simulated" not in told.err  # it was chosen already
    assert json.loads((out / "summary.json").read_text())["rounds"] == 2
    assert run(["fedgan", "train", "--resume", str(out), "--no-simulate", "--rounds", "3"]) == 2
    assert "simulate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--no-simulate"], "80 devices as processes take 36 GB"),
        (
            ["--servers", "2", "--lease-s", "5"],
            "For devices that are processes: --servers, --lease",
        ),
        (["--simulate", "--devices", "3", "--fraction", "1", "--secure-aggregation"], "--secure-a"),
    ],
)
def test_what_needs_processes_is_refused_of_simulated_devices(tmp_path, capsys, words, message):
    assert run(["fedgan", "train", "--out", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "simulated"),
    [
        ({"devices": 16}, False),
        ({"devices": 17}, True),
        ({"devices": 4, "simulate": True}, True),
        ({"devices": 100, "listen": "127.0.0.1:1"}, False),  # they run elsewhere
    ],
)
def test_devices_are_processes_where_this_machine_can_hold_them(given, simulated):
    assert made(FedganSettings, given).simulated is simulated


def test_a_run_that_could_not_begin_may_be_begun_again(tmp_path, capsys):
    out = tmp_path / "run"
    words = [*flags(devices=2, fraction=1), "--no-simulate"]
    begin = ["fedgan", "train", "--out", str(out), *words, "--state"]
    assert run([*begin, "postgresql://me@127.0.0.1:1/none"]) == 1
    assert "cannot be used" in capsys.readouterr().err
    RunDirectory(out).check_new()
    (tmp_path / "file").touch()
    assert run([*begin, str(tmp_path / "file" / "state.sqlite")]) == 2
    assert "cannot be written to" in capsys.readouterr().err
    RunDirectory(out).check_new()


@pytest.mark.parametrize("flag", ["--noise-epsilon", "--dp-epsilon", "--weak-devices"])
def test_what_devices_elsewhere_decide_is_not_promised_for_them(tmp_path, capsys, flag):
    out, given = tmp_path / "run", ["--devices", "2", "--fraction", "1", flag, "0.5"]
    assert run(["fedgan", "train", "--out", str(out), "--listen", "127.0.0.1:1", *given]) == 2
    assert f"{flag} out here" in capsys.readouterr().err
    assert not out.exists()


def test_devices_of_other_machines_need_certificates_before_anything_is_written(tmp_path, capsys):
    words = ["--devices", "2", "--fraction", "1", "--listen", "0.0.0.0:1"]
    assert run(["fedgan", "train", "--out", str(tmp_path / "run"), *words]) == 2
    assert "Give --certificates DIR" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_server_that_waits_for_a_training_says_so(tmp_path):
    ended, told = threading.Event(), []

    def tell(line):
        told.append(line)
        ended.set()

    with closing(open_state_database(tmp_path / "state.sqlite", "typo")) as database:
        serve_apart(
            "server-1", "127.0.0.1:0", database, certificates=None, ended=ended, tell=tell
        )  # fmt: skip
    assert told == ["server-1 waits for typo to begin: its state is not in that database yet."]


def test_a_directory_that_is_no_run_has_no_generator(tmp_path, capsys):
    assert run(["fedgan", "sample", str(tmp_path)]) == 2
    assert "holds no generator" in capsys.readouterr().err


def test_a_grid_has_as_many_columns_as_asked_for(tmp_path):
    write_grid(torch.zeros(5, 3, 4, 4), tmp_path / "grid.png", columns=5)
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (5 * 6 + 2, 6 + 2)
        assert grid.getpixel((3, 3)) == (128, 128, 128)


@pytest.mark.heavy
def test_the_demonstration_trains_four_times_and_draws_them_beside_each_other(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("GARFIELD_DATA", str(tmp_path))  # features of real images are kept there
    out = tmp_path / "demo"
    words = ["--rounds", "1", "--local-steps", "1", "--judged-images", "40"]
    words += ["--out", str(out), "--json"]
    assert run(["fedgan", "demo", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["neither", "weights", "sampling", "both"]
    assert {(each["sampling"], each["weighting"]) for each in found.values()} == {
        ("random", "uniform"), ("random", "kl"), ("balanced", "uniform"), ("balanced", "kl"),
    }  # fmt: skip
    assert all(each["fid"] > 0 for each in found.values())
    assert {"images.png", "seen.png", "fid.png", *found} <= {path.name for path in out.iterdir()}
    with Image.open(out / "images.png") as picture:
        assert picture.size == (10 * 30 + 2, 4 * 30 + 2)
