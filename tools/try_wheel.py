"""Try an installed wheel as someone who has just installed it: a rule, and the command line.

Run by the Python it is installed for, from anywhere outside the source tree. Needs what the wheel
needs and nothing else: [tool.cibuildwheel] and `make wheel` call it where there is no torch.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

import garfield


def main() -> None:
    rows = np.ones((9, 1000), np.float32)
    rows[7:] = -100.0  # two liars of nine
    joined = garfield.init("multi-krum", n=9, f=2).aggregate(rows)
    assert np.array_equal(joined, rows[0]), joined[:5]
    assert "torch" not in sys.modules, "a rule on numpy rows imports torch"

    command = str(Path(sysconfig.get_path("scripts")) / "garfield")
    for words, expected in (
        (["--version"], f"garfield {garfield.__version__}"),
        (["--help"], "Robust distributed learning"),
        (["rules"], "centered-clipping"),
        (["resilience", "--help"], "--picture"),
    ):
        done = subprocess.run([command, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr}"
        assert expected in done.stdout, f"{words} printed no {expected!r}: {done.stdout[:200]}"

    where = Path(garfield.__file__).parent
    isa = garfield.kernels.isa()
    print(f"garfield {garfield.__version__} works, with {isa} kernels, in {where}")


if __name__ == "__main__":
    main()
