"""What a run leaves behind, when it was cut: by a power cut, a full disk, half a character."""

import resource

import pytest

from garfield.core.errors import RunError
from garfield.report.run_history import Roster, read_history
from garfield.report.summary import summarise
from garfield.runs.run_directory import RunDirectory

WHOLE = '{"event": "done", "node": "größer", "step": 3}\n'
CUTS = {"in the middle": WHOLE.encode()[:20], "in a character": WHOLE.encode()[:28]}


@pytest.fixture
def directory(tmp_path):
    return RunDirectory(tmp_path / "run")


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_what_comes_after_a_cut_line_is_not_lost_with_it(directory, cut):
    directory.path.mkdir()
    directory.metrics.write_bytes(WHOLE.encode() + cut)
    with directory:
        directory.open({})
        directory.record({"event": "resumed", "step": 2})
    assert [event["event"] for event in directory.events()] == ["done", "resumed"]


@pytest.mark.parametrize(
    "line",
    [b"5", b"[]", b'"text"', b"{}", b'{"event": 3}', b"[" * 99_999, b"9" * 9_999, b"\0" * 99],
)
def test_a_line_that_is_no_event_is_passed_over(directory, line):
    directory.path.mkdir()
    directory.metrics.write_bytes(line + b"\n" + WHOLE.encode())
    assert [event["event"] for event in directory.events()] == ["done"]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "resumed"}, {"event": "resumed", "step": "x"}, {"event": "step", "step": 3},
        {"event": "x", "node": "server-0", "accuracy": 1.0}, {"event": "x", "bytes_sent": 3},
        {"event": "step", "node": "server-0", "step": 1, "time_s": None, "communication_s": 1,
         "aggregation_s": 1},
        {"event": "x", "node": "server-0", "bytes_sent": 1, "bytes_received": 1,
         "faults": {"a": 1}},
    ],
)  # fmt: skip
def test_an_event_of_another_shape_is_passed_over(event):
    found = summarise(read_history([event], Roster(["server-0"], ["worker-0"])))
    assert (found["steps"], found["accuracy"], found["liars"]) == (0, None, {})


@pytest.fixture
def small_files():
    """Files may have 4 KB, as if the disk were full then; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_metrics_that_cannot_be_written_are_told_once_and_closing_is_quiet(directory, small_files):
    with directory:
        directory.open({})
        for _ in range(20):
            directory.record({"event": "x", "text": 100 * "x"})
        with pytest.raises(RunError, match=r"metrics.jsonl cannot be written to: File too large"):
            directory.record({"event": "x", "text": 5000 * "x"})
        directory.record({"event": "x"})
    assert len(directory.events()) >= 20
    with pytest.raises(RunError, match=r"summary.json cannot be written to"):
        directory.write_summary({"text": 5000 * "x"})
