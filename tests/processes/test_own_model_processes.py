"""A model and data of the user's own, at nodes that are processes: each finds them for itself."""

import json
import subprocess
import sys

import numpy as np
import pytest

from garfield.launch.training_run import TrainingRun
from tests.command import invoke

MINE = """
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    steps = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        Net.steps += 1
        if Net.steps == FAILS_AT:
            raise ZeroDivisionError("in the middle")
        return self.layer(x)

def load():
    x = np.random.default_rng(0).normal(size=(300, 4))
    return x, (x[:, 0] > 0).astype(int)

def score(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()

FAILS_AT = 0
"""
CALL = """
import garfield

{guard}
    run = garfield.train(model=Net, data=load(), workers=2, steps=10, out="run", progress=False)
    print(type(run.model()) is Net, run.summary["steps"], run.settings.samples.data)
"""


def script(folder, guard):
    path = folder / "script.py"
    path.write_text(MINE + CALL.format(guard=guard))
    return subprocess.run(
        [sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_by_command_line_a_file_is_enough_and_the_run_can_be_resumed(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    mine, out = tmp_path / "mine.py", tmp_path / "run"
    flags = ["--model", f"{mine}:Net", "--data", f"{mine}:load", "--metric", f"{mine}:score"]
    done = invoke(["train", *flags, "--workers", "2", "--steps", "6", "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert ", score " in done.stderr
    again = invoke(["train", "--resume", str(out), "--steps", "9", "--json"])
    assert again.exit_code == 0, again.stderr
    summary = json.loads(again.stdout)
    assert (summary["resumed_at"], summary["steps"], summary["metric"]) == ([6], 9, "score")
    assert TrainingRun.open(out).model().layer.weight.shape == (2, 4)


@pytest.mark.slow
def test_a_script_hands_over_its_class_and_arrays_without_pickling(tmp_path):
    done = script(tmp_path, 'if __name__ == "__main__":')
    assert done.returncode == 0, done.stderr
    right, steps, data = done.stdout.split()
    assert (right, steps) == ("True", "10")
    assert data.startswith(f"arrays:{tmp_path}/run/data-")
    kept = np.load(next((tmp_path / "run").glob("data-*/x.npy")), allow_pickle=False)
    assert kept.dtype == np.float32


@pytest.mark.heavy
def test_a_script_that_trains_when_it_is_imported_is_told_what_to_write(tmp_path):
    done = script(tmp_path, "if True:")
    assert done.returncode == 1
    assert 'Put the call under: if __name__ == "__main__":' in done.stderr


@pytest.mark.heavy
def test_what_a_model_raises_in_a_process_comes_back_with_file_and_line(tmp_path):
    (tmp_path / "mine.py").write_text(MINE.replace("FAILS_AT = 0", "FAILS_AT = 9"))
    mine = tmp_path / "mine.py"
    flags = ["--model", f"{mine}:Net", "--data", f"{mine}:load", "--workers", "2", "--steps", "40"]
    done = invoke(
        ["train", *flags, "--give-up-s", "5", "--timeout-s", "2", "--out", str(mine.parent / "o")]
    )
    assert done.exit_code == 1
    line = MINE.splitlines().index('            raise ZeroDivisionError("in the middle")') + 1
    assert f"ZeroDivisionError: in the middle ({mine}:{line})" in done.stderr
