"""Scratch directories: swept when their owner is gone, and never before."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from garfield.runs import scratch
from garfield.runs.scratch import LONGEST_PLACE, scratch_directory, short_place, sweep

OWNER = """
import sys
from garfield.runs.scratch import scratch_directory
with scratch_directory() as directory:
    (directory / "socket").touch()
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def tmp_path(monkeypatch):
    """A short one, where temporary files go: pytest's is too long for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        _temporary_files_go_to(monkeypatch, short)
        yield Path(short)


def _temporary_files_go_to(monkeypatch, directory):
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_what_a_killed_process_left_is_swept_by_the_next_and_what_lives_is_not(tmp_path):
    (tmp_path / "garfield-notes").mkdir()  # somebody's own
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    left = owner.stdout.readline().strip()
    assert sweep() == []
    assert os.listdir(left)
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert os.path.exists(left)
    with scratch_directory() as directory:
        assert not os.path.exists(left)
        assert sweep() == []  # not one's own either
        assert directory.stat().st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path) == ["garfield-notes"]


def test_where_paths_are_too_long_for_sockets_a_shorter_place_is_taken_and_swept(
    tmp_path, monkeypatch
):
    long, short = tmp_path / ("x" * LONGEST_PLACE), tmp_path / "short"
    long.mkdir()
    short.mkdir()
    monkeypatch.setattr(scratch, "_SHORT", (tmp_path / "missing", short))
    _temporary_files_go_to(monkeypatch, long)
    assert short_place() == short
    with scratch_directory() as directory:
        assert directory.parent == short
        left = directory.with_name("garfield-left")
        left.mkdir()
        (left / "owner.lock").touch()
        assert sweep() == [left]
    assert [*long.iterdir(), *short.iterdir()] == []


def test_room_for_what_stands_further_down_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "_SHORT", ())
    room = LONGEST_PLACE - len(str(tmp_path))
    assert short_place(room) == tmp_path
    monkeypatch.setattr(scratch, "_SHORT", (Path("/"),))
    assert short_place(room + 1) == Path("/")


def test_without_a_shorter_place_the_usual_one_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "_SHORT", (tmp_path / "missing",))
    assert short_place(LONGEST_PLACE) == tmp_path
