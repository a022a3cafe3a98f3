"""Every example runs as a user would run it, and learns."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/train.py"))


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, marks=pytest.mark.slow if "01-ssmw" in str(path) else pytest.mark.heavy)
        for path in EXAMPLES
    ],
    ids=lambda path: path.parent.name,
)
def test_the_example_learns_although_some_lie(example, tmp_path):
    done = subprocess.run(
        [sys.executable, example],
        capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"final accuracy (\S+)", done.stdout).group(1))
    assert accuracy > 0.8
