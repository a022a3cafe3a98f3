"""The example of federated GANs runs as a user would run it, and is short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[2] / "examples" / "08-federated-gan" / "federate.py"


def test_a_gan_of_ones_own_takes_less_than_seventy_lines():
    lines = EXAMPLE.read_text().splitlines()
    ported = lines[lines.index("import sys") :]
    assert len([line for line in ported if line.strip()]) < 70  # networks included


@pytest.mark.heavy
def test_the_example_draws_images_as_bright_as_real_ones(tmp_path):
    grid = tmp_path / "grid.png"
    done = subprocess.run(
        [sys.executable, EXAMPLE, "25", grid],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^round \d+: devices", done.stdout, flags=re.M)) == 25
    ours, real = map(float, re.search(r"pixels: (\S+), of real ones (\S+)", done.stdout).groups())
    assert abs(ours - real) < 0.3 < abs(real)  # before training they are grey: 0
    with Image.open(grid) as picture:
        assert picture.size == (302, 302)
