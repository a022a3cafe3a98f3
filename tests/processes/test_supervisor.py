"""The supervisor with real processes: start, hear, signal, end, outlive, adopt."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from garfield.core.errors import ConfigError, NodeFailed
from garfield.runs import supervisor as supervisor_module
from garfield.runs.supervisor import Supervisor
from tests import supervised_targets as targets

PATIENCE_S = 60.0  # for a machine that is busy otherwise


@pytest.fixture
def supervisor():
    with Supervisor() as supervisor:
        yield supervisor


def until(supervisor, name, kind):
    """That event of that process, and what was heard on the way to it."""
    heard = []
    while True:
        found = supervisor.events(PATIENCE_S)
        assert found, f"no {kind} of {name} in {PATIENCE_S:g} s, but {heard}"
        heard += found
        for who, event in found:
            if (who, event["event"]) == (name, kind):
                return event, heard


def gone(pid):
    """Whether a process ends in time: waited for, not polled."""
    try:
        psutil.Process(pid).wait(PATIENCE_S)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def until_frozen(pid):
    """Every thread stops by itself, soon after the signal."""
    deadline = time.monotonic() + PATIENCE_S
    while any(
        stat.read_text().rpartition(")")[2].split()[0] != "T"
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- events and messages ------------------------------------------------------------------


def test_processes_report_and_answer_by_name(supervisor):
    supervisor.start("worker-0", targets.echo)
    supervisor.start("worker-1", targets.echo, "good day")
    first = supervisor.started(PATIENCE_S)
    assert [first[name]["greeting"] for name in ("worker-0", "worker-1")] == ["hello", "good day"]
    assert supervisor.pids == {name: event["pid"] for name, event in first.items()}
    supervisor.send("worker-1", {"a": [1, 2.5, None]})
    event, heard = until(supervisor, "worker-1", "echo")
    assert event["message"] == {"a": [1, 2.5, None]}
    assert len(heard) == 1


def test_messages_sent_before_anybody_listens_arrive(supervisor):
    supervisor.start("worker-0", targets.count_until_told)
    supervisor.send("worker-0", 3)
    _, heard = until(supervisor, "worker-0", "ended")
    assert [event["number"] for _, event in heard if event["event"] == "count"] == [0, 1, 2]


def test_a_process_carries_its_name_in_ps_and_top(supervisor):
    supervisor.start("worker-0", targets.echo)
    supervisor.started(PATIENCE_S)
    proc = Path(f"/proc/{supervisor.pids['worker-0']}")
    assert proc.joinpath("comm").read_text().strip() == "worker-0"
    assert proc.joinpath("cmdline").read_text().strip("\0 ") == "garfield: worker-0"


def test_two_processes_of_one_name_are_refused(supervisor):
    supervisor.start("worker-0", targets.echo)
    with pytest.raises(ConfigError, match="worker-0 runs already, as process"):
        supervisor.start("worker-0", targets.echo)


# -- how processes end --------------------------------------------------------------------


@pytest.mark.parametrize(("code", "failure"), [(0, None), (3, "worker-0 ended with code 3.")])
def test_an_end_is_told_once_and_last_with_its_exit_code(supervisor, code, failure):
    supervisor.start("worker-0", targets.end_with, code)
    event, heard = until(supervisor, "worker-0", "ended")
    assert [e["event"] for _, e in heard] == ["ready", "ended"]
    assert (event["exit_code"], event["error"]) == (code, f"worker-0 ended with code {code}.")
    assert supervisor.exit_codes == {"worker-0": code}
    assert supervisor.failure("worker-0") == failure
    assert supervisor.events(0.0) == []


def test_a_failure_is_told_in_its_own_words(supervisor):
    supervisor.start("worker-0", targets.fail)
    event, heard = until(supervisor, "worker-0", "ended")
    failed = heard[0][1]
    assert failed["event"] == "failed"
    assert failed["error"].startswith("ValueError: seven is not prime enough (")
    assert "ValueError" in failed["trace"]
    assert event["exit_code"] == 1
    assert "seven is not prime enough" in supervisor.failure("worker-0")


def test_a_process_that_is_killed_is_told_with_the_signal(supervisor):
    supervisor.start("worker-0", targets.echo)
    supervisor.started(PATIENCE_S)
    supervisor.signal("worker-0", signal.SIGKILL)
    event, _ = until(supervisor, "worker-0", "ended")
    assert (event["exit_code"], event["error"]) == (-9, "worker-0 was ended by signal 9.")
    supervisor.send("worker-0", "too late")
    supervisor.signal("worker-0", signal.SIGTERM)


def test_an_end_is_heard_of_though_a_grandchild_holds_the_pipe(supervisor):
    supervisor.start("worker-0", targets.leave_a_grandchild)
    first = supervisor.started(PATIENCE_S)["worker-0"]
    try:
        event, _ = until(supervisor, "worker-0", "ended")
        assert event["exit_code"] == 0
    finally:
        os.kill(first["grandchild"], signal.SIGKILL)


# -- starting in time, and again ----------------------------------------------------------


def test_one_that_fails_to_start_is_named_with_its_reason(supervisor):
    supervisor.start("worker-0", targets.echo)
    supervisor.start("worker-1", targets.fail)
    told = "worker-1 did not start: ValueError: seven is not prime"
    with pytest.raises(NodeFailed, match=told) as failed:
        supervisor.started(PATIENCE_S)
    cause = str(failed.value.__cause__)  # the other process's traceback, with file and line
    assert f'File "{targets.__file__}", line {targets.fail.__code__.co_firstlineno + 1}' in cause


def test_one_that_never_reports_is_named(supervisor):
    supervisor.start("worker-0", targets.never_report)
    with pytest.raises(NodeFailed, match=r"worker-0 did not start in 0\.2 s\."):
        supervisor.started(0.2)


def test_a_name_is_free_again_once_its_process_has_ended(supervisor):
    supervisor.start("worker-0", targets.echo, "again")
    before = supervisor.started(PATIENCE_S)["worker-0"]
    supervisor.stop(["worker-0"])
    supervisor.start("worker-0", targets.echo, "again")
    after = supervisor.started(PATIENCE_S)["worker-0"]
    assert after["greeting"] == "again"
    assert after["pid"] == supervisor.pids["worker-0"] != before["pid"]
    assert gone(before["pid"])


def test_one_started_later_is_waited_for_alone(supervisor):
    supervisor.start("worker-0", targets.echo)
    assert list(supervisor.started(PATIENCE_S)) == ["worker-0"]
    supervisor.start("worker-1", targets.echo)
    assert list(supervisor.started(PATIENCE_S)) == ["worker-1"]


def test_a_frozen_process_is_thawed(supervisor):
    supervisor.start("worker-0", targets.echo)
    supervisor.started(PATIENCE_S)
    supervisor.signal("worker-0", signal.SIGSTOP)
    until_frozen(supervisor.pids["worker-0"])
    supervisor.send("worker-0", 1)
    assert supervisor.events(0.2) == []
    supervisor.signal("worker-0", signal.SIGCONT)
    assert until(supervisor, "worker-0", "echo")[0]["message"] == 1


def test_a_frozen_process_does_not_answer_and_a_busy_one_does(supervisor):
    for name in ("worker-0", "worker-1"):
        supervisor.start(name, targets.never_report if name == "worker-1" else targets.echo)
    assert supervisor.probe("worker-1")  # nobody has asked it before
    until(supervisor, "worker-0", "ready")
    supervisor.signal("worker-0", signal.SIGSTOP)
    until_frozen(supervisor.pids["worker-0"])
    supervisor.probe("worker-0")
    deadline = time.monotonic() + PATIENCE_S
    while not supervisor.probe("worker-1"):
        assert supervisor.events(0.1) == []  # an answer is for the supervisor alone
        assert time.monotonic() < deadline
    assert not supervisor.probe("worker-0")
    supervisor.kill("worker-0", "worker-0 sleeps.")
    told = [event["event"] for name, event in supervisor.events(PATIENCE_S) if name == "worker-0"]
    assert told == ["failed", "ended"]
    assert supervisor.failure("worker-0") == "worker-0 sleeps."
    assert gone(supervisor.pids["worker-0"])


@pytest.mark.timeout(2 * PATIENCE_S)
def test_sending_to_a_frozen_process_waits_for_nobody_and_loses_nothing(supervisor):
    for name in ("worker-0", "worker-1"):
        supervisor.start(name, targets.echo)
    supervisor.started(PATIENCE_S)
    supervisor.signal("worker-0", signal.SIGSTOP)
    until_frozen(supervisor.pids["worker-0"])
    filling = [f"{number} " * 1000 for number in range(1000)]  # more than any socket holds
    for text in filling:
        supervisor.send("worker-0", text)
    supervisor.send("worker-1", "meanwhile")
    assert until(supervisor, "worker-1", "echo")[0]["message"] == "meanwhile"
    supervisor.signal("worker-0", signal.SIGCONT)
    heard = []
    while len(heard) < len(filling):
        found = supervisor.events(PATIENCE_S)
        assert found, len(heard)
        heard += [event["message"] for _, event in found]
    assert heard == filling


# -- stopping -----------------------------------------------------------------------------


def test_a_stop_is_polite_and_returns_the_last_words(supervisor):
    for name in ("worker-0", "worker-1"):
        supervisor.start(name, targets.echo)
    supervisor.started(PATIENCE_S)
    heard = supervisor.stop(["worker-0"])
    assert [(name, event["event"]) for name, event in heard] == [("worker-0", "ended")]
    assert supervisor.exit_codes == {"worker-0": 0}
    assert supervisor.is_running("worker-1")


def test_stopping_nobody_stops_nobody(supervisor):
    supervisor.start("worker-0", targets.echo)
    assert supervisor.stop([]) == []
    assert supervisor.is_running("worker-0")


def test_one_that_ignores_sigterm_is_killed(supervisor, monkeypatch):
    monkeypatch.setattr(supervisor_module, "STOP_S", 0.2)
    supervisor.start("worker-0", targets.ignore_sigterm)
    supervisor.started(PATIENCE_S)
    pid = supervisor.pids["worker-0"]
    [(name, event)] = supervisor.stop()
    assert (name, event["event"], event["exit_code"]) == ("worker-0", "ended", -9)
    assert supervisor.exit_codes == {"worker-0": -9}
    assert gone(pid)


# -- the supervisor is killed -------------------------------------------------------------


@contextmanager
def supervising(*arguments):
    """A supervisor in another process, and the pids of its own; the latter are killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.supervise", *map(str, arguments)],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = {}
    try:
        pids = json.loads(process.stdout.readline())
        yield process, pids
    finally:
        process.kill()
        process.communicate()
        for pid in pids.values():
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def test_processes_end_with_their_supervisor_also_when_it_is_killed():
    with supervising() as (process, pids):
        process.kill()
        assert all(gone(pid) for pid in pids.values())


def test_those_that_outlive_a_killed_supervisor_are_adopted_and_what_was_missed_is_told(tmp_path):
    directory = tmp_path / ("a-directory-with-a-name-too-long-for-a-socket" * 3)
    with supervising(directory) as (process, pids):
        process.kill()
        process.wait()
        assert gone(pids["worker-1"])  # it fails when it is left alone
        with Supervisor(outlive_in=directory) as supervisor:
            assert supervisor.adopt() == ["worker-0", "worker-2"]
            assert supervisor.pids == {name: pids[name] for name in ("worker-0", "worker-2")}
            heard = supervisor.events(0.0)
            assert [(name, event["event"]) for name, event in heard] == [
                ("worker-1", "alone"), ("worker-1", "failed"), ("worker-1", "ended"),
            ]  # fmt: skip
            assert "left alone" in heard[1][1]["error"]
            assert heard[2][1]["exit_code"] == 1
            until(supervisor, "worker-2", "alone")
            supervisor.send("worker-0", "are you there?")
            event, _ = until(supervisor, "worker-0", "echo")
            assert event["message"] == "are you there?"
            supervisor.stop()
            assert supervisor.exit_codes == {"worker-0": 0, "worker-2": 0}
        assert gone(pids["worker-0"])
        left = {path.name for path in directory.iterdir()}
        assert left == {"supervisor.lock", *(f"worker-{number}.log" for number in range(3))}


@pytest.fixture
def outliving(tmp_path):
    """Makes supervisors of one directory; whatever they leave running is ended."""
    directory = tmp_path / "processes"
    yield lambda: Supervisor(outlive_in=directory)
    with Supervisor(outlive_in=directory) as last:
        last.adopt()
        last.stop()


def test_an_adopted_process_goes_on_and_its_failure_is_told(outliving):
    with outliving() as first:
        first.start("worker-0", targets.fail_when_told)
        first.started(PATIENCE_S)
    with outliving() as second:
        assert second.adopt() == ["worker-0"]
        second.send("worker-0", "now")
        event, heard = until(second, "worker-0", "ended")
        assert "told to fail" in heard[0][1]["error"]
        assert event["exit_code"] == 1


def test_an_adopted_process_that_is_killed_has_no_exit_code_and_that_is_said(outliving):
    with outliving() as first:
        first.start("worker-0", targets.echo)
        first.started(PATIENCE_S)
    with outliving() as second:
        second.adopt()
        second.signal("worker-0", signal.SIGKILL)
        event, _ = until(second, "worker-0", "ended")
        assert event["exit_code"] is None
        assert "how is not known" in event["error"]


def test_a_name_that_is_no_file_name_is_refused(outliving):
    with outliving() as first, pytest.raises(ConfigError, match="cannot name a process"):
        first.start("../worker-0", targets.echo)


def test_one_that_still_runs_is_not_started_twice(outliving):
    with outliving() as first:
        first.start("worker-0", targets.echo)
        first.started(PATIENCE_S)
    still = pytest.raises(ConfigError, match="worker-0 of an earlier supervisor still runs")
    with outliving() as second, still:
        second.start("worker-0", targets.echo)


def test_a_record_of_another_process_with_the_same_pid_is_not_believed(outliving, tmp_path):
    with outliving() as first:
        stale = {"pid": os.getpid(), "started": "another boot 123"}
        (tmp_path / "processes/worker-0.json").write_text(json.dumps(stale))
        assert first.adopt() == []
        assert "how is not known" in until(first, "worker-0", "ended")[0]["error"]


def test_a_second_supervisor_of_the_same_processes_is_refused(outliving):
    with outliving(), pytest.raises(ConfigError, match="Another supervisor has the processes of"):
        outliving()
