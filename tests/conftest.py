"""What holds for every test."""

import os
import signal
import subprocess

# one thread a process: two test processes that each use all cores wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

# as in a terminal: a shell that starts tests in the background has them ignore Ctrl-C, and what
# they start would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# how long an example takes says how busy the machine is; examples are the same in every run
hypothesis.settings.register_profile("garfield", deadline=None, derandomize=True)
hypothesis.settings.load_profile("garfield")


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch):
    """Tables fold as the terminal narrows; tests read them unfolded."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"a file system cannot be mounted here: {problem}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)
