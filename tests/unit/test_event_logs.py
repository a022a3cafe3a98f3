"""Logs for other tools: what they hold is what the run has told, and none of them ends a run."""

import csv
import logging
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event as Record

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, MissingDependency, UnknownName
from garfield.runs import event_logs
from garfield.runs.run_directory import RunDirectory

STEP = {"event": "step", "node": "server-0", "step": 1, "time_s": 0.5, "trusted": ["worker-1"]}
SETTINGS = {"app": "ssmw", "gar": "median"}


def recorded(path, events, logs, summary=None):
    with RunDirectory(path) as directory:
        directory.open(SETTINGS, logs)
        for event in events:
            directory.record(event)
    directory.write_summary(summary or {})


def table(path):
    with (path / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def points(folder):
    """(tag, step, value) of every file in a folder of TensorBoard, as its format frames them."""
    found = []
    for path in sorted(folder.iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            record = Record.FromString(content[at + 12 : at + 12 + length])
            found += [
                (value.tag, record.step, value.simple_value)
                for value in record.summary.value
                if value.HasField("simple_value")
            ]
            at += length + 16
    return found


def test_a_table_has_a_row_an_event_and_a_column_a_field_that_is_no_list(tmp_path):
    worker = {"event": "worker", "node": "worker-1", "step": 1, "compute_s": 0.25}
    recorded(tmp_path, [STEP, worker, {**STEP, "step": 2, "accuracy": 0.5}], ["csv"])
    first, second, third = table(tmp_path)
    assert list(first) == ["event", "node", "step", "time_s", "compute_s", "accuracy"]
    assert (first["time_s"], first["accuracy"], second["compute_s"]) == ("0.5", "", "0.25")
    assert (third["step"], third["accuracy"]) == ("2", "0.5")


def test_a_table_leaves_out_what_a_resumed_run_did_again(tmp_path):
    recorded(tmp_path, [STEP, {**STEP, "step": 2}, {**STEP, "step": 3}], ["csv"])
    recorded(tmp_path, [{"event": "resumed", "step": 1}, {**STEP, "step": 2, "time_s": 9}], ["csv"])
    assert [(row["event"], row["step"], row["time_s"]) for row in table(tmp_path)] == [
        ("step", "1", "0.5"), ("resumed", "1", ""), ("step", "2", "9"),
    ]  # fmt: skip


def test_tensorboard_holds_the_numbers_of_each_server_at_their_steps(tmp_path):
    other = {**STEP, "node": "server-1", "accuracy": 0.25, "variance_held": True, "loss": None}
    worker = {"event": "worker", "node": "worker-1", "step": 1, "compute_s": 0.25}
    recorded(tmp_path, [STEP, {**STEP, "step": 2}, other, worker], ["tensorboard"])
    home = tmp_path / "tensorboard"
    assert sorted(path.name for path in home.iterdir()) == ["server-0", "server-1"]
    assert points(home / "server-0") == [("time_s", 1, 0.5), ("time_s", 2, 0.5)]
    assert points(home / "server-1") == [("time_s", 1, 0.5), ("accuracy", 1, 0.25)]


def test_rounds_are_places_on_a_curve_as_steps_are(tmp_path):
    recorded(tmp_path, [{"event": "round", "round": 4, "kl_seen": 0.5}], ["tensorboard", "csv"])
    assert points(tmp_path / "tensorboard") == [("kl_seen", 4, 0.5)]
    assert table(tmp_path)[0]["round"] == "4"


def test_a_log_that_cannot_be_written_is_given_up_and_the_run_goes_on(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("a file in its way")
    with caplog.at_level(logging.WARNING):
        recorded(tmp_path, [STEP, {**STEP, "step": 2}], ["tensorboard", "csv"])
    assert [line.split(":")[0] for line in caplog.messages] == [
        "tensorboard is not written to any more"
    ]
    assert len(table(tmp_path)) == len(RunDirectory(tmp_path).events()) == 2


def test_what_cannot_be_logged_to_is_refused_before_anything_starts(monkeypatch):
    with pytest.raises(UnknownName, match="Did you mean tensorboard"):
        Settings.of(log="tensorbord").recording.check()
    monkeypatch.setattr(event_logs, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'garfield-ml\[mlflow\]'"):
        Settings.of(log="csv,mlflow").recording.check()
    with pytest.raises(ConfigError, match="plots must be one of png, svg, pdf, none, got 'gif'"):
        Settings.of(plots="gif").recording.check()
