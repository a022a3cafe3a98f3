"""Where TensorFlow is not installed nothing is different, and asking for it says what to do."""

import subprocess
import sys

import pytest

HIDDEN = """
from importlib.machinery import PathFinder

def some(name, path=None, target=None, every=PathFinder.find_spec):
    hidden = name.partition(".")[0] in ("tensorflow", "keras")
    return None if hidden else every(name, path, target)

PathFinder.find_spec = some
"""
TRAIN = (
    "sys.argv = ['garfield', 'train', '--model', 'digits_mlp', '--data', 'digits', '--workers',"
    " '3', '--steps', '2', '--simulate', '--out', OUT, *MORE]\n"
    "from garfield.cli import main\n"
    "main()\n"
)


def run(tmp_path, script, *more, hide=True):
    given = f"import sys\nOUT, MORE = {str(tmp_path / 'x')!r}, {list(more)!r}\n"
    return subprocess.run(
        [sys.executable, "-c", (HIDDEN if hide else "") + given + script],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.heavy
def test_training_with_torch_does_not_notice(tmp_path):
    pytest.importorskip("torch")
    done = run(tmp_path, TRAIN)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


@pytest.mark.heavy
@pytest.mark.slow
def test_training_with_torch_does_not_import_it_where_it_is(tmp_path):
    pytest.importorskip("torch")
    watch = "import atexit\natexit.register(lambda: print('loaded', 'tensorflow' in sys.modules))\n"
    done = run(tmp_path, watch + TRAIN, hide=False)
    assert done.returncode == 0, done.stderr
    assert "loaded False" in done.stdout


@pytest.mark.parametrize("framework", ["tensorflow", "torch,tensorflow"])
def test_asking_for_it_gives_the_command_that_installs_it(tmp_path, framework):
    done = run(tmp_path, TRAIN, "--framework", framework)
    assert done.returncode != 0
    assert "pip install 'garfield-ml[tensorflow]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.heavy
def test_training_with_tensorflow_needs_no_torch(tmp_path):
    pytest.importorskip("tensorflow")
    without_torch = HIDDEN.replace('("tensorflow", "keras")', '("torch",)')
    done = run(tmp_path, without_torch + TRAIN, "--framework", "tensorflow", hide=False)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


@pytest.mark.heavy
def test_importing_tensorflow_through_garfield_says_nothing():
    pytest.importorskip("tensorflow")
    script = "from garfield.core.frameworks import tensorflow; tensorflow().constant(1)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
