"""How much a command says, and what a shell is taught of it."""

import logging
import shutil
import subprocess

import pytest

from garfield.cli.app import COMMANDS, run

TINY = ["train", "--simulate", "--model", "digits_mlp", "--data", "digits", "--workers", "3"]


@pytest.fixture
def loggers_as_they_were():
    ours = logging.getLogger("garfield")
    level, handlers = ours.level, list(ours.handlers)
    yield
    ours.setLevel(level)
    ours.handlers[:] = handlers


@pytest.fixture
def train(tmp_path):
    return [*TINY, "--steps", "2", "--plots", "none", "--out", str(tmp_path / "run")]


def test_quiet_leaves_results_and_errors(train, capsys):
    assert run(["-q", *train]) == 0
    told = capsys.readouterr()
    assert "accuracy" in told.out
    assert told.err == ""
    assert run(["--quiet", *train]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_quiet_command_hushes_no_later_one(train, capsys):
    assert run(["-q", "rules"]) == 0
    assert run(train) == 0
    assert "step 2/2" in capsys.readouterr().err


def test_verbose_prints_every_event(train, tmp_path, capsys, loggers_as_they_were):
    assert run(["-v", *train]) == 0
    told = capsys.readouterr().err
    lines = [line for line in told.splitlines() if line.startswith("{")]
    assert "\n".join(lines) + "\n" == (tmp_path / "run/metrics.jsonl").read_text()


@pytest.mark.parametrize("switch", ["-v", "-q", "--debug", "--load"])
def test_a_switch_behind_the_command_is_told_where_it_goes(train, switch, capsys):
    assert run([*train, switch]) == 2
    assert f"{switch} goes before the command: garfield {switch}" in capsys.readouterr().err


def test_pictures_are_of_the_kind_that_is_asked_for(train, tmp_path):
    train[train.index("none")] = "svg"
    assert run(train) == 0
    found = {path.suffix for path in (tmp_path / "run").iterdir()}
    assert ".svg" in found
    assert ".png" not in found


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to complete words")
def test_bash_completes_commands_and_flags(tmp_path, capsys):
    assert run(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words):
        asked = f"COMP_WORDS=(garfield {' '.join(words)}); COMP_CWORD={len(words)}"
        called = f'_garfield garfield "{words[-1]}" x; echo "${{COMPREPLY[@]}}"'
        told = f"source {script}; {asked}; {called}"
        done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, timeout=20)
        return done.stdout.split()

    assert completed("expo") == ["export"]
    assert {"--learning-rate", "--learning-rate-decay"} <= set(completed("train", "--learning"))
    assert set(COMMANDS) <= set(completed('""'))
