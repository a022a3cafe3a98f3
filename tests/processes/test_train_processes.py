"""`garfield train` as its users run it: real processes, interrupted, killed, failing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("grpc")

SMALL = (
    "--model", "digits_mlp", "--data", "digits", "--workers", "3", "--batch", "8",
    "--evaluate-every", "2",
)  # fmt: skip
PATIENCE_S = 240.0  # for a machine that is busy otherwise


@pytest.fixture
def garfield(tmp_path):
    """Starts ``garfield …`` in a process group of its own; reaps it, and its children."""
    started, seen = [], set()

    def start(*words, command="train", before=()):
        program = Path(sys.executable).parent / "garfield"
        process = subprocess.Popen(
            [program, *before, command, *map(str, words)], cwd=tmp_path, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    start.seen = seen
    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for pid in seen:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def until(condition, timeout_s=PATIENCE_S):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def steps_told(directory):
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum('"event": "step"' in line for line in lines)


def family(process):
    """Pids of all that the launcher has started, however indirectly."""
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


def alive(pids):
    def living(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if living(pid)]


def test_a_run_leaves_a_complete_directory(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 4, "--out", "x")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "accuracy" in out
    assert "step 2/4" in err  # a line for each evaluation
    here = tmp_path / "x"
    assert {path.name for path in here.iterdir()} == {
        "config.toml", "metrics.jsonl", "checkpoints", "summary.json",
        "accuracy.png", "breakdown.png", "trust.png",
    }  # fmt: skip
    summary = json.loads((here / "summary.json").read_text())
    assert summary["steps"] == 4
    assert 0 <= summary["accuracy"] <= 1
    assert summary["batches_per_s"] == pytest.approx(3 * summary["updates_per_s"])
    assert set(summary["breakdown"]) == {"compute_s", "communication_s", "aggregation_s"}
    assert all(seconds > 0 for seconds in summary["breakdown"].values())
    vector = 4 * 4810
    assert summary["bytes_sent"] >= 3 * 4 * 2 * vector
    assert summary["bytes_received"] >= 3 * 4 * 2 * vector
    assert (summary["interrupted"], summary["failed"], summary["liars"]) == (False, None, {})


def test_ctrl_c_ends_all_nodes_and_keeps_what_was_learnt(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    until(lambda: steps_told(tmp_path / "x") >= 3)
    nodes = family(process)
    garfield.seen.update(nodes)
    assert len(nodes) >= 4
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    until(lambda: not alive(nodes))
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert summary["interrupted"]
    assert summary["steps"] >= 3
    done = garfield("--resume", "x", "--steps", summary["steps"] + 3)
    _, err = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0, err
    again = json.loads((tmp_path / "x/summary.json").read_text())
    assert again["steps"] == summary["steps"] + 3
    assert again["resumed_at"][0] >= summary["steps"] - 1
    told = (tmp_path / "x/metrics.jsonl").read_text()
    assert "no-velocity" not in told  # every worker went on with its momentum
    saved = sorted(
        path.name for path in (tmp_path / "x/checkpoints").glob("*-velocity-*.safetensors")
    )
    assert len({name.partition("-velocity")[0] for name in saved}) == 3


@pytest.mark.heavy
def test_a_second_ctrl_c_does_not_wait_for_a_node_that_will_not_end(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    nodes = _nodes(process, tmp_path / "x", garfield.seen)
    frozen = nodes[-1]
    os.kill(frozen, signal.SIGSTOP)  # polite requests do not reach it
    os.killpg(process.pid, signal.SIGINT)
    until(lambda: not set(alive(nodes)) - {frozen})  # for this one the launcher waits five seconds
    os.killpg(process.pid, signal.SIGINT)
    until(lambda: not alive(nodes), 3)  # sooner than by itself
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    until(lambda: not alive(garfield.seen))
    assert json.loads((tmp_path / "x/summary.json").read_text())["interrupted"]


def test_ctrl_c_while_starting_is_quiet_too(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    nodes = until(lambda: family(process))
    garfield.seen.update(nodes)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    until(lambda: not alive(nodes))


def test_killing_the_launcher_leaves_no_orphans(garfield, tmp_path):
    process = garfield(*SMALL, "--steps", 100_000, "--out", "x")
    until(lambda: steps_told(tmp_path / "x") >= 1)
    nodes = family(process)
    garfield.seen.update(nodes)
    assert nodes
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not alive(nodes))
    assert not alive(nodes)


@pytest.mark.heavy
def test_a_tolerated_death_is_a_warning_and_an_intolerable_one_a_clear_failure(garfield, tmp_path):
    waits = ("--timeout-s", 1, "--give-up-s", 2, "--steps", 100_000)
    tolerant = garfield(
        *SMALL[:4], "--workers", 5, "--f-workers", 1, "--evaluate-every", 2, *waits, "--out", "x"
    )
    victims = _nodes(tolerant, tmp_path / "x", garfield.seen)
    os.kill(victims[-1], signal.SIGKILL)
    before = steps_told(tmp_path / "x")
    until(lambda: steps_told(tmp_path / "x") > before + 20)
    os.kill(victims[-2], signal.SIGKILL)
    _, err = tolerant.communicate(timeout=PATIENCE_S)
    assert tolerant.returncode == 1
    assert "was ended by signal 9" in err
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("Error: server-0 got 3 of 5 gradients")
    assert "connection refused" in last
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert summary["failed"] == last.removeprefix("Error: ")
    assert (summary["liars"], bool(summary["silent"])) == ({}, True)


def _nodes(process, directory, seen):
    """Pids of the nodes in the order of their start: servers first."""
    until(lambda: steps_told(directory) >= 2)
    seen.update(family(process))
    [forkserver] = [
        child
        for child in psutil.Process(process.pid).children()
        if any("forkserver" in word for word in child.cmdline())
    ]
    return sorted(child.pid for child in forkserver.children())


@pytest.mark.heavy
def test_a_users_own_rule_is_known_to_every_node(garfield, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import garfield\n"
        "@garfield.gar('my-rule', needs=lambda f: f + 1)\n"
        "def my_rule(rows, *, f):\n"
        "    return rows.median()\n"
    )
    process = garfield(
        *SMALL, "--gar", "my-rule", "--steps", 2, "--out", "x", before=("--load", "mine.py")
    )
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert f'load = ["{tmp_path}/mine.py"]' in (tmp_path / "x/config.toml").read_text()
    (tmp_path / "mine.py").unlink()
    lost = garfield("--resume", "x", "--steps", 4)  # which loads it by itself
    _, err = lost.communicate(timeout=PATIENCE_S)
    assert lost.returncode == 2
    assert "mine.py is none or is not there" in err


@pytest.mark.heavy
def test_the_demo_ends_with_a_table_and_a_picture(garfield, tmp_path):
    process = garfield("--steps", 4, "--out", "x", command="demo")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "vanilla attacked" in out
    assert "2 liars among 9 workers" in out
    assert (tmp_path / "x/demo.png").exists()
    assert (tmp_path / "x/robust-attacked/summary.json").exists()


SLOW_TO_EVALUATE = """
import time

from torch import nn

from garfield.models import MODELS, Model, build


class Thoughtful(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = build("digits_mlp")

    def forward(self, images):
        if not self.training:
            time.sleep(1.5)
        return self.inside(images)


MODELS.add("thoughtful", Model("thoughtful", lambda classes, channels: Thoughtful(), (1, 8, 8)))
"""


@pytest.mark.heavy
def test_a_server_that_evaluates_for_longer_than_peers_wait_is_not_taken_for_dead(
    garfield, tmp_path
):
    """Of the two servers left one lied: a run that tolerates one liar was lost."""
    (tmp_path / "mine.py").write_text(SLOW_TO_EVALUATE)
    process = garfield(
        *SMALL, "--app", "msmw", "--model", "thoughtful", "--gar", "median",
        "--servers", 3, "--byzantine-servers", 1, "--server-attack", "random", "--steps", 20,
        "--timeout-s", 1, "--out", "x", before=("--load", "mine.py"),
    )  # fmt: skip
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert "server-0" not in summary["liars"]
    assert summary["accuracy"] > 0.5
    events = [json.loads(line) for line in (tmp_path / "x" / "metrics.jsonl").open()]
    evaluated = [event["step"] for event in events if event["event"] == "evaluated"]
    assert evaluated[0] == 2
    assert len(evaluated) < 9  # those that there was no time for are left out
