"""A grid of real runs in a pool of processes: killed, interrupted, out of room, and resumed."""

import csv
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

import garfield
from garfield.core.errors import ConfigError
from garfield.runs.run_directory import RunDirectory
from tests.command import invoke

PATIENCE_S = 120
SMALL = {
    "model": "digits_mlp", "data": "digits", "workers": 5, "steps": 3, "evaluate_every": 1,
    "byzantine_workers": 1, "batch": 4,
}  # fmt: skip
GRID = {
    **SMALL,
    "grid": {
        "gar": ["median", "average"], "worker_attack": ["sign-flip", "inf"], "seed": [0, 1],
    },
}  # fmt: skip


def rows_of(path):
    with (path / "results.csv").open() as file:
        return list(csv.DictReader(file))


def written(path, content):
    """A TOML file of a grid."""
    tables = {name: content[name] for name in ("grid", "tune") if name in content}
    lines = [f"{k} = {json.dumps(v)}" for k, v in content.items() if k not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_a_grid_leaves_a_run_for_each_cell_and_is_not_run_twice(tmp_path, capfd):
    file, out = written(tmp_path / "grid.toml", GRID), tmp_path / "out"
    done = invoke(["sweep", file, "--out", out, "--no-pictures"])
    assert done.exit_code == 0, done.stderr
    assert "Worst attack per rule" in done.stdout
    assert "8/8 cells" in done.stderr
    rows = rows_of(out)
    assert len(rows) == 8
    assert {row["status"] for row in rows if row["gar"] == "median"} == {"done"}
    averaged = [row for row in rows if row["gar"] == "average" and row["worker_attack"] == "inf"]
    assert {row["status"] for row in averaged} <= {"done", "diverged"}
    for row in rows:
        run = RunDirectory(out / row["directory"])
        assert json.loads(run.summary.read_text())["seed"] == int(row["seed"])
        assert run.config.is_file()
        assert not run.checkpoints.exists()
    last = out / rows[3]["directory"]  # not the first of its process
    done = invoke(["train", "--config", last / "config.toml", "--out", tmp_path / "alone"])
    assert done.exit_code == 0, done.stderr
    alone = json.loads((tmp_path / "alone/summary.json").read_text())
    assert (alone["accuracy"], alone["loss"]) == (
        float(rows[3]["accuracy"]),
        float(rows[3]["loss"]),
    )
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/cell.json")}
    again = garfield.sweep(
        {**GRID, "grid": {**GRID["grid"], "seed": [0, 1, 2]}}, out, pictures=False, progress=False
    )
    assert "cells" not in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(again.rows()) == 12
    assert not again.failures
    frame = again.frame()
    assert set(frame["status"]) <= {"done", "diverged"}
    assert list(frame.columns)[:3] == ["gar", "worker_attack", "seed"]


@pytest.mark.slow
def test_a_killed_process_fails_its_cell_alone_and_a_crash_is_told_with_its_line(tmp_path):
    rules = tmp_path / "mine.py"
    rules.write_text(
        "import os, signal\nfrom garfield import gar\n"
        "@gar('deadly', needs=lambda f: 2 * f + 1)\n"
        "def deadly(rows, *, f):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "@gar('broken', needs=lambda f: 2 * f + 1)\n"
        "def broken(rows, *, f):\n    return 1 / 0\n"
    )
    grid = {**SMALL, "load": ["mine.py"], "grid": {"gar": ["deadly", "broken", "median", "krum"]}}
    file, out = written(tmp_path / "grid.toml", grid), tmp_path / "out"
    command = [sys.executable, "-m", "garfield", "-q", "sweep", file, "--out", out]
    command += ["--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    status = {row["gar"]: row["status"] for row in rows_of(out)}
    assert status == {"deadly": "failed", "broken": "failed", "median": "done", "krum": "done"}
    errors = {row["gar"]: row["error"] for row in rows_of(out)}
    assert "signal 9" in errors["deadly"]
    assert "ZeroDivisionError" in errors["broken"]
    assert f"{rules}:8" in errors["broken"]
    (trace,) = out.glob("runs/gar=broken*/failure.txt")
    assert "line 8, in broken" in trace.read_text()
    assert "2 of 4 cells failed" in done.stderr
    assert "gar=broken failed: " in done.stderr
    assert "/4 cells" not in done.stderr  # progress, which -q leaves away


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_complete_and_the_same_command_goes_on(tmp_path):
    shared = {name: value for name, value in SMALL.items() if name != "steps"}
    grid = {**shared, "grid": {"steps": [3, 100_000], "seed": [0, 1]}}
    file, out = written(tmp_path / "grid.toml", grid), tmp_path / "out"
    command = [sys.executable, "-m", "garfield", "sweep", file, "--out", out, "--processes", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(list(out.glob("runs/steps=100000*/metrics.jsonl"))) == 2)
        children = psutil.Process(process.pid).children(recursive=True)
        refused = invoke(["sweep", file, "--out", out])
        assert refused.exit_code == 2
        assert "Another sweep runs in" in refused.stderr
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 130, stderr
    assert "2 cells are left" in stderr
    assert "Every setup" in stdout
    assert [row["status"] for row in rows_of(out)] == ["done", "done", "waiting", "waiting"]
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running()]
    shorter = {**shared, "grid": {"steps": [3, 4], "seed": [0, 1]}}
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/steps=3,*/cell.json")}
    done = garfield.sweep(shorter, out, pictures=False)
    assert [row["status"] for row in done.rows()] == ["done"] * 4
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(before) == 2


@pytest.mark.heavy
def test_a_full_disk_is_told_what_is_complete_is_kept_and_room_lets_it_go_on(small_disk, tmp_path):
    grid = {**SMALL, "steps": 40, "grid": {"seed": list(range(40))}}
    file, out = written(tmp_path / "grid.toml", grid), small_disk / "out"
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1200 << 10))
    done = invoke(["sweep", file, "--out", out, "--no-pictures"])
    assert done.exit_code == 1, done.output
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"Error: The disk of {out} is full")
    assert "Make room, and give the same command again" in last
    assert done.stderr.count(f"The disk of {out} is full") == 2  # at once, and with what is kept
    complete = list(out.glob("runs/*/cell.json"))
    assert f"{len(complete)} of 40 cells are complete" in last
    assert 0 < len(complete) < 40
    before = {path: path.stat().st_mtime_ns for path in complete}
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = invoke(["sweep", file, "--out", out, "--no-pictures"])
    assert done.exit_code == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row["status"] for row in rows_of(out)] == ["done"] * 40


def test_impossible_cells_are_refused_or_left_out_and_recorded(tmp_path):
    grid = {**SMALL, "grid": {"gar": ["median", "bulyan", "krmu"]}}
    file, out = written(tmp_path / "grid.toml", grid), tmp_path / "out"
    done = invoke(["-q", "sweep", file, "--out", out])
    assert done.exit_code == 2
    assert not out.exists()
    assert "gar=bulyan: bulyan needs n >= 7" in done.stderr
    assert "gar=krmu: krmu is not a rule. Did you mean krum?" in done.stderr
    with pytest.raises(ConfigError, match=r"(?s)gar=bulyan: .*\n.*gar=krmu: .*\n2 of 3 cells"):
        garfield.sweep(file, out)
    left = garfield.sweep(file, out, skip_impossible=True, pictures=False)
    assert [row["status"] for row in left.rows()] == ["done", "impossible", "impossible"]
    assert not left.failures
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thing").touch()
    with pytest.raises(ConfigError, match="holds no grid"):
        garfield.sweep(file, tmp_path / "other", skip_impossible=True)


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
