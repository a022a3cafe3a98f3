"""`garfield drill`: what it prints and returns, and that it sees what does not hold."""

import json
from pathlib import Path

import pytest

from garfield.apps.settings import Settings
from garfield.cli.drill import run_command
from garfield.launch.drill.checks import Broken
from garfield.launch.drill.schedule import Fault, FaultKind, Schedule, StageKind
from garfield.launch.drill.stages import drilled
from tests.command import invoke

pytest.importorskip("torch")
pytest.importorskip("grpc")

SETTINGS = {
    "app": "ssmw", "model": "digits_mlp", "data": "digits", "workers": 4, "f_workers": 1,
    "gar": "median", "batch": 8, "timeout_s": 2.0, "give_up_s": 30.0, "checkpoint_every": 5,
}  # fmt: skip


def forgetful(channel, words, log, tmp):
    """A node that ends with 3 when it is told to end."""
    try:
        run_command(channel, words, log, tmp)
    except SystemExit as end:
        raise SystemExit(3 if end.code == 0 else end.code) from None


def test_a_drill_in_simulation_is_the_same_every_time_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = tmp_path / "run.toml"
    config.write_text(
        "\n".join(f"{k.replace('_', '-')} = {json.dumps(v)}" for k, v in SETTINGS.items())
    )
    words = ["drill", "--config", config, "--by", "simulation", "--faults", "3", "--seed", "2"]
    one, other = invoke([*words, "--json"]), invoke(words)
    assert (one.exit_code, other.exit_code) == (0, 0), one.stderr
    report = json.loads(one.stdout)
    assert (report["held"], report["faults"], report["violations"]) == (True, 3, {})
    assert len(report["outcomes"]) == 5
    for outcome in report["outcomes"]:
        assert outcome["what"] in other.stdout
        assert str(outcome["step"]) in other.stdout
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("garfield")]


@pytest.mark.heavy
def test_a_node_that_ends_with_a_wrong_code_is_seen(tmp_path: Path):
    settings = Settings.of(**SETTINGS)
    schedule = Schedule(StageKind.TCP, 0, (Fault(FaultKind.RESTART, "worker-1", 2, 0.1),))
    report = drilled(settings, schedule, tmp_path, command=forgetful)
    assert set(report.counts) == {Broken.EXIT_CODE.value}
    assert "worker-1 ended with 3" in str(report.outcomes[1].violations[0])
    assert len(report.outcomes) == 3  # the start, and the end
