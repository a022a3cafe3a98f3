"""Build the wheel that this machine can, and try it in an environment that holds nothing else.

    python -m tools.build_wheel dist

[tool.cibuildwheel] in pyproject.toml does the same for other systems and processors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NEEDED = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
_LEFT_BY_BUILDS = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "sorters.h")


def build(out: Path, scratch: Path) -> Path:
    """Build a wheel into `out`, from a copy of the tree: setuptools packs what is in build/ too."""
    tree = scratch / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=_LEFT_BY_BUILDS)
    for name in _NEEDED:
        shutil.copy(ROOT / name, tree)
    made = scratch / "made"
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(made), str(tree)])
    (wheel,) = made.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, out))


def try_out(wheel: Path, scratch: Path) -> str:
    """Install a wheel with what it needs, and nothing else, and use it; what that printed."""
    home = scratch / "venv"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    pinned = ["-c", str(ROOT / "constraints.txt")]
    _run([python, "-m", "pip", "install", "--quiet", *pinned, str(wheel)])
    return _run([python, str(ROOT / "tools" / "try_wheel.py")], cwd=scratch)


def _run(command: list[str], cwd: Path | None = None) -> str:
    """Run a command that must not find this checkout; what it printed."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=around, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}.\n{done.stdout}")
    return done.stdout


def main(out: str) -> None:
    with tempfile.TemporaryDirectory(prefix="garfield-wheel-") as scratch:
        wheel = build(Path(out), Path(scratch))
        print(try_out(wheel, Path(scratch)), end="")
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main(*sys.argv[1:])
