"""Scratch directories: swept when their owner is gone, and never before."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from garfield.runs.scratch import scratch_directory, sweep

OWNER = """
import sys
from garfield.runs.scratch import scratch_directory
with scratch_directory() as directory:
    (directory / "socket").touch()
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
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
