"""What holds for every test."""

import pytest


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch):
    """Tables fold as the terminal narrows; tests read them unfolded."""
    monkeypatch.setenv("COLUMNS", "200")
