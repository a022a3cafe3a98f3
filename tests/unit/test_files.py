"""Files are there whole or not at all, and JSON is the same wherever it is written."""

import json
import math
import os
from dataclasses import dataclass

import pytest

from garfield.cli.shared import print_json
from garfield.core.files import as_json, replacing, write_json, write_text
from garfield.runs.run_directory import RunDirectory


@dataclass
class Cell:
    error: float
    names: tuple[str, ...] = ("a", "b")


def strictly(text):
    """Parse JSON and refuse NaN and Infinity, which are Python's own."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_however_deep(number):
    text = as_json({1: [number, Cell(number)], "b": (1.5, True, None, "ü")})
    assert strictly(text) == {
        "1": [None, {"error": None, "names": ["a", "b"]}], "b": [1.5, True, None, "ü"],
    }  # fmt: skip
    assert "ü" in text


def test_a_number_that_is_not_finite_is_null_on_disk_and_with_json(tmp_path, capsys):
    with RunDirectory(tmp_path / "run") as directory:
        directory.open({"steps": 3})
        directory.record({"event": "step", "loss": math.nan})
        directory.write_summary({"loss": math.nan})
    assert strictly(directory.metrics.read_text())["loss"] is None
    assert strictly(directory.summary.read_text())["loss"] is None
    print_json({"loss": math.nan})
    assert strictly(capsys.readouterr().out)["loss"] is None


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.json"
    write_text(path, "old")
    write_json(path, {"a": math.nan})
    assert path.read_text() == '{\n  "a": null\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_midway_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail():
        with replacing(path) as partial:
            partial.write_text("ne")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_takes_the_name_is_on_the_disk_before(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(
        os, "fsync", lambda opened: done.append(os.readlink(f"/proc/self/fd/{opened}"))
    )
    write_text(tmp_path / "x", "new")
    partial, directory = done
    assert partial.endswith(".part")
    assert directory == str(tmp_path)
