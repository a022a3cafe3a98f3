"""A federated training that is interrupted ends in good order, and can be resumed."""

import json
import signal
import subprocess
import sys
import time

import pytest

from garfield.fedgan.saved_weights import LearningStates
from garfield.report.fedgan_summary import FedganHistory
from garfield.runs.run_directory import RunDirectory

SMALL = [
    "--gan", "lsgan(width=0.0625)", "--devices", "6", "--partition", "iid", "--fraction", "0.34",
    "--local-steps", "2", "--batch", "8", "--judge", "none", "--checkpoint-every", "1000",
]  # fmt: skip


def garfield(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "garfield", "fedgan", "train", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def rounds_of(path):
    return FedganHistory.of(RunDirectory(path).events()).rounds


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_keeps_its_rounds_and_goes_on(tmp_path, how):
    out = tmp_path / "run"
    process = garfield("--simulate", "--rounds", "100000", "--out", str(out), *SMALL)
    try:
        while len(rounds_of(out)) < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(how)
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, told
    assert f"--resume {out}" in told
    held = len(rounds_of(out))
    # of the last round that was over when the signal came
    assert max(LearningStates(out / "checkpoints").saved()) in (held - 1, held)
    assert json.loads((out / "summary.json").read_text())["interrupted"]
    again = garfield("--resume", str(out), "--rounds", str(held + 2))
    _, told = again.communicate(timeout=200)
    assert again.returncode == 0, told
    assert [event["round"] for event in rounds_of(out)] == list(range(held + 2))
