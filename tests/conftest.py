"""What holds for every test."""

import os

# one thread a process: two test processes that each use all cores wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch):
    """Tables fold as the terminal narrows; tests read them unfolded."""
    monkeypatch.setenv("COLUMNS", "200")
