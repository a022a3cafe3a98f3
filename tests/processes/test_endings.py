"""How a run ends when somebody insists: signals late and often, a full disk, a killed helper."""

import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.marks import heavy_but
from tests.processes.test_train_processes import (
    PATIENCE_S,
    SMALL,
    alive,
    family,
    garfield,  # noqa: F401 (a fixture)
    steps_told,
    until,
)

pytest.importorskip("torch")
pytest.importorskip("grpc")

# pytest hands fixtures over by their names
# ruff: noqa: F811


def ended(process):
    _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err


def pressed_until_gone(process, number=signal.SIGINT):
    """Somebody keeps Ctrl-C pressed: a hundred a second, until the process is gone."""

    def press():
        while process.poll() is None:
            os.kill(process.pid, number)
            time.sleep(0.01)

    thread = threading.Thread(target=press)
    thread.start()
    found = ended(process)
    thread.join()
    return found


def summed_up(directory):
    return (directory / "summary.json").exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "moment", heavy_but(["as it trains", "as it is summed up"], "as it is summed up")
)
def test_ctrl_c_kept_pressed_ends_a_run_in_good_order(garfield, tmp_path, moment):
    """Once it aborted the interpreter."""
    steps = 100_000 if moment == "as it trains" else 3
    process = garfield(*SMALL, "--steps", steps, "--out", "x")
    if moment == "as it trains":
        until(lambda: steps_told(tmp_path / "x") >= 2)
    else:
        until(lambda: summed_up(tmp_path / "x"))
    garfield.seen.update(family(process))
    code, err = pressed_until_gone(process)
    assert code == 130, err
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert summary["interrupted"] == (moment == "as it trains")
    until(lambda: not alive(garfield.seen))


@pytest.mark.heavy
def test_sigterm_after_the_last_step_is_an_interrupt_too(garfield, tmp_path):
    """It ended the process by the signal, with -15."""
    process = garfield(*SMALL, "--simulate", "--steps", 3, "--out", "x")
    until(lambda: summed_up(tmp_path / "x"))  # pictures are drawn now
    process.send_signal(signal.SIGTERM)
    code, err = ended(process)
    assert code == 130, err
    assert "Go on with" not in err  # there is nothing to go on with


def test_sigterm_before_anything_has_started_is_an_interrupt_too(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    until(lambda: heeds(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    code, err = ended(process)
    assert code == 130, err
    assert "Traceback" not in err


def heeds(pid, number):
    """Whether the process has a handler for that signal."""
    with open(f"/proc/{pid}/status") as status:
        [mask] = [line.split()[1] for line in status if line.startswith("SigCgt")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.heavy
@pytest.mark.slow
def test_what_a_killed_launcher_left_in_the_temporary_directory_is_swept(
    garfield, tmp_path, monkeypatch
):
    with tempfile.TemporaryDirectory() as short:  # sockets stand in it: 107 bytes at most
        monkeypatch.setenv("TMPDIR", short)
        _kill_a_launcher_and_start_another(garfield, tmp_path, Path(short))


@pytest.mark.heavy
@pytest.mark.slow
def test_a_run_needs_no_short_path_for_temporary_files(garfield, tmp_path, monkeypatch):
    """It was refused: sockets stand there, whose paths may have 107 bytes."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    code, err = ended(garfield(*SMALL, "--steps", 1, "--out", "x"))
    assert code == 0, err


def _kill_a_launcher_and_start_another(garfield, tmp_path, temporary):
    def left():  # torch leaves a directory of its own
        return [p.name for p in temporary.iterdir() if p.name.startswith(("garfield", "pymp"))]

    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    until(lambda: steps_told(tmp_path / "x") >= 1)
    garfield.seen.update(family(process))
    process.kill()
    ended(process)
    until(lambda: not alive(garfield.seen))
    assert left()
    code, err = ended(garfield(*SMALL, "--steps", 1, "--out", "y"))
    assert code == 0, err
    assert left() == []


@pytest.mark.slow
def test_a_killed_forkserver_is_told_in_a_line(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    forkserver = until(lambda: forkserver_of(process))
    garfield.seen.update(family(process))
    os.kill(forkserver.pid, signal.SIGKILL)
    code, err = ended(process)
    assert code == 1, err
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("Error: ")
    assert "did not start" in err
    assert json.loads((tmp_path / "x/summary.json").read_text())["failed"]


def forkserver_of(process):
    for child in psutil.Process(process.pid).children():
        try:
            if any("forkserver" in word for word in child.cmdline()):
                return child
        except psutil.NoSuchProcess:
            continue
    return None


@pytest.mark.heavy
@pytest.mark.parametrize("simulate", [(), ("--simulate",)], ids=["processes", "simulated"])
def test_a_full_disk_is_told_in_a_line_and_what_was_learnt_is_summed_up(
    garfield, small_disk, simulate
):
    process = garfield(*SMALL, "--steps", 100_000, "--out", small_disk / "x", *simulate)
    until(lambda: steps_told(small_disk / "x") >= 2)
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(b"x" * (2 << 20))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "cannot be written to" in last
    assert "No space left on device" in last
    assert len(err.splitlines()) < 40 + steps_told(small_disk / "x")  # a line an evaluation
    assert "accuracy" in out  # the summary is shown, though it cannot be kept


@pytest.mark.heavy
def test_a_full_disk_fails_a_checkpoint_in_a_line(garfield, small_disk):
    """The model alone would fit, its metrics do; its checkpoint does not."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (2 * 1024 * 1024 - 64 * 1024))
    words = ("--simulate", "--steps", 8, "--checkpoint-every", 2, "--momentum", 0.9)
    process = garfield(*SMALL, *words, "--out", small_disk / "x")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    assert "A checkpoint of step" in err.strip().splitlines()[-1]
