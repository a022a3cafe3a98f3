"""Models leave as named tensors, and are the same where nobody knows this library."""

import json

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
from safetensors import safe_open

from garfield.cli.app import run
from garfield.models import build
from garfield.runs.checkpoints import read_checkpoint

TINY = ["--simulate", "--model", "digits_mlp", "--data", "digits", "--steps", "4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", *TINY, "--app", "msmw", "--workers", "5", "--servers", "4"]
    assert run([*words, "--plots", "none", "--out", str(out)]) == 0
    return out


def test_the_model_loads_into_a_module_of_the_same_names(trained, tmp_path, capsys):
    path = tmp_path / "weights" / "model.safetensors"
    assert run(["export", str(trained), str(path)]) == 0
    assert "of server-0 at step 4." in capsys.readouterr().out
    module = build("digits_mlp", seed=7)
    module.load_state_dict(safetensors.torch.load_file(path))  # strict: all names, and no other
    vector = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    saved = read_checkpoint(trained / "checkpoints" / "server-0-00000004.safetensors")
    np.testing.assert_array_equal(vector, saved.vector)
    with safe_open(path, "np") as file:
        assert (file.metadata()["model"], file.metadata()["step"]) == ("digits_mlp", "4")


def test_any_server_may_be_named(trained, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    assert run(["export", str(trained), str(path), "--server", "server-2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["server"], told["step"], told["numbers"]) == ("server-2", 4, 4810)
    saved = read_checkpoint(trained / "checkpoints" / "server-2-00000004.safetensors")
    tensors = safetensors.numpy.load_file(path)
    assert sum(float(tensor.sum(dtype=float)) for tensor in tensors.values()) == pytest.approx(
        float(saved.vector.sum(dtype=float))
    )
    assert run(["export", str(trained), str(path), "--server", "server-9"]) == 2
    assert "server-9 is not a server of this run" in capsys.readouterr().err


def test_what_is_no_run_of_a_training_is_refused(tmp_path, capsys):
    assert run(["export", str(tmp_path), str(tmp_path / "model.safetensors")]) == 2
    assert "holds no run" in capsys.readouterr().err
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "generator.safetensors").touch()
    assert run(["export", str(tmp_path), str(tmp_path / "model.safetensors")]) == 2
    assert "has written" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_keras_model_leaves_under_the_names_of_its_variables(tmp_path):
    keras = pytest.importorskip("keras")
    from garfield.adapters.tensorflow_adapter import TensorFlowAdapter
    from garfield.models import build_in_keras

    model = build_in_keras("digits_mlp", seed=3)
    tensors = TensorFlowAdapter(model).tensors()
    twin = build_in_keras("digits_mlp", seed=4)
    assert isinstance(twin, keras.Model)
    for mine, its in zip(twin.weights, model.weights, strict=True):
        assert tensors[its.path].shape == tuple(mine.shape)
        np.testing.assert_array_equal(tensors[its.path], its.numpy())
