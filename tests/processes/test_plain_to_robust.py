"""A plain training script becomes robust by five lines, and then learns although a peer lies."""

import re
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIRS = sorted(EXAMPLES.glob("*-plain-to-robust-*"))
LEARNED = 0.6  # of ten classes
WAIT_S = 580  # on a machine that has much else to do

pytestmark = pytest.mark.timeout(600)
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda path: path.name)
every_run = pytest.mark.parametrize(
    "pair",
    [
        pytest.param(path, marks=pytest.mark.heavy if "keras" in path.name else pytest.mark.slow)
        for path in PAIRS
    ],
    ids=lambda path: path.name,
)


def accuracy(script):
    """What it prints last; nothing at all if it has failed."""
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    if done.returncode:
        return 0.0, done.stderr
    return float(re.search(r"final accuracy (\S+)", done.stdout).group(1)), done.stderr


def changed_lines(before, after):
    """A line that was replaced counts once."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def test_there_are_such_examples():
    assert PAIRS


@every_pair
def test_at_most_five_lines_differ(pair):
    plain, robust = ((pair / name).read_text().splitlines() for name in ("plain.py", "robust.py"))
    assert 0 < changed_lines(plain, robust) <= 5


def test_lines_are_counted_as_a_reader_would():
    assert changed_lines(["a", "b", "c"], ["a", "b", "c"]) == 0
    assert changed_lines(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert changed_lines(["a", "b", "c"], ["c"]) == 2


@pytest.mark.heavy
@every_run
def test_the_plain_script_learns(pair):
    assert accuracy(pair / "plain.py")[0] > LEARNED


@pytest.mark.heavy
@every_run
def test_the_robust_script_learns_although_a_peer_lies(pair):
    found, said = accuracy(pair / "robust.py")
    assert found > LEARNED, said


@pytest.mark.heavy
@every_pair
def test_averaging_learns_nothing_from_the_same_peers(pair, tmp_path):
    robust = (pair / "robust.py").read_text()
    averaging = tmp_path / "averaging.py"
    averaging.write_text(robust.replace('gar="multi-krum"', 'gar="average"'))
    assert averaging.read_text() != robust
    found, said = accuracy(averaging)
    assert found < 0.2
    assert found > 0 or "the model" in said  # it has diverged, and says so
