"""A controller is light: what it imports of a job brings no torch."""

import subprocess
import sys

import pytest

import garfield.elastic.job

LIGHT = (
    "coordination", "cursor", "environment", "in_pod", "learning_rate", "on_kubernetes",
    "on_sqlite", "options",
)  # fmt: skip


def test_a_controller_needs_no_torch():
    modules = [f"garfield.elastic.job.{name}" for name in LIGHT]
    modules += ["garfield.elastic.control", "garfield.elastic.local.daemon"]
    program = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_names_are_imported_when_first_used():
    assert garfield.elastic.job.ElasticOptions().batch == 64
    with pytest.raises(AttributeError, match="Elastic"):
        _ = garfield.elastic.job.Elastic
