"""Benchmarks that run side by side take turns, and what one starts does not wait for it."""

import os
import subprocess
import sys

from benchmarks.alone import VARIABLE, alone

TRY = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_free(path) -> bool:
    return (
        subprocess.run([sys.executable, "-c", TRY, path], stderr=subprocess.DEVNULL).returncode == 0
    )


def test_nobody_else_gets_the_lock_while_one_measures(tmp_path, monkeypatch):
    path = str(tmp_path / "lock")
    monkeypatch.setenv(VARIABLE, path)
    with alone():
        assert not is_free(path)
        assert os.environ[VARIABLE] == ""  # for what is started now: it has no need to wait
        with alone():
            assert not is_free(path)
        assert not is_free(path)
    assert is_free(path)
    assert os.environ[VARIABLE] == path
