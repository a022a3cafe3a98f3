"""`garfield reproduce` as a user meets it."""

import json
import subprocess
import sys

import pytest

from garfield.core.errors import ConfigError
from garfield.launch import reproduce
from garfield.report.recipes import Recipe, Step


def garfield(*words, cwd):
    command = [sys.executable, "-m", "garfield", "reproduce", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_figure_is_reproduced_and_a_second_run_finds_every_cell_done(tmp_path):
    done = garfield("aggregathor-poisoning", "--quick", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "results" / "reproduce" / "aggregathor-poisoning-quick"
    found = json.loads((folder / "reproduced.json").read_text())
    here = {row["what"]: row["here"] for row in found["rows"]}
    assert here["average, 1 of 19 lies"] < 50 < here["multi-krum, 1 of 19 lies"]
    assert found["pictures"] == ["poisoning.png"]
    assert (folder / "poisoning.png").is_file()
    assert "Why they differ" in done.stdout
    again = garfield("aggregathor-poisoning", "--quick", "--json", cwd=tmp_path)
    assert "of 3:" in done.stderr
    assert "of 3:" not in again.stderr
    assert json.loads(again.stdout)["rows"] == found["rows"]


@pytest.mark.slow
def test_a_table_of_a_benchmark_is_reproduced_from_a_clone(tmp_path):
    done = garfield("3.1", "--quick", "--json", "--out", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row["here"] for row in json.loads(done.stdout)["rows"]}
    assert rows["CifarNet"] == 1_756_426


def test_what_measures_is_refused_without_a_clone_and_recipes_are_those_installed(monkeypatch):
    monkeypatch.setattr(reproduce, "clone", lambda: None)
    timed = Recipe("figure-9", "t", "s", 1, steps=(Step(("benchmarks", "draco"), "draco"),))
    with pytest.raises(ConfigError, match=r"figure-9 measures .* Run it inside a clone"):
        reproduce.Reproduction(timed, folder=None).check()
    assert reproduce.recipes_folder().parent.name == "garfield"
