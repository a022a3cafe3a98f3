"""What a local cluster is told, and what it keeps: settings, job files, the database."""

import json
import sys

import pytest

from garfield.core.errors import ConfigError, CoordinationUnreachable
from garfield.elastic.control import Phase
from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.database import ClusterDatabase, WorkerState
from garfield.elastic.local.history import histories, start_up_s, summary
from garfield.elastic.local.job_file import read_job_file
from garfield.elastic.local.settings import LocalSettings
from garfield.elastic.policy import Share
from tests.command import invoke


def written(tmp_path, text, name="job.toml"):
    (tmp_path / "train.py").touch()
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.fixture
def database(tmp_path):
    made = ClusterDatabase(tmp_path / "cluster.sqlite", create=True)
    made.slots = 4
    yield made
    made.close()


def job(tmp_path, **request):
    asked = "\n".join(f"{name.replace('_', '-')} = {value}" for name, value in request.items())
    return read_job_file(
        written(tmp_path, f'command = ["{sys.executable}", "train.py"]\n{asked}\n')
    )


# job files


def test_a_job_file_says_what_runs_where_and_on_how_much(tmp_path):
    found = job(tmp_path, min_workers=2, batch=16)
    assert (found.name, found.directory) == ("job", str(tmp_path))
    assert found.command == (sys.executable, "train.py")
    assert (found.request.min_workers, found.request.batch) == (2, 16)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("min-workers = 5\nstart-workers = 5\nmax-workers = 4", "min ≤ start ≤ max"),
        ("command = []", "says no command"),
        ('command = ["no-such-program"]', "no program here"),
        ('command = ["PYTHON", "other.py"]', "no such file"),
        ('command = ["PYTHON", "train.py"]\ndirectory = "nowhere"', "no directory"),
        ('command = ["PYTHON", "train.py"]\nname = "a/b"', "cannot name a job"),
        ('command = ["PYTHON", "train.py"]\nenvironment = ["A"]', "NAME=value"),
        ('command = ["PYTHON", "train.py"]\nmin-worker = 1', "Did you mean min_workers"),
        ("command = [", "cannot be read"),
    ],
)
def test_a_job_file_that_cannot_be_run_is_refused(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told):
        read_job_file(written(tmp_path, text.replace("PYTHON", sys.executable)))


# settings


def test_a_slot_has_its_share_of_the_machine_and_at_most_a_core():
    assert LocalSettings(slots=10_000).cpus < 0.5
    assert LocalSettings(slots=1).cpus == 1.0
    wide = LocalSettings(slots=1, slot_cpus=3.0, slot_memory_mb=2)
    assert (wide.threads, wide.capacity.cpus, wide.capacity.memory_bytes) == (3, 1.0, 2**21)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"slots": 0}, "slots"),
        ({"policy": "erra"}, "Did you mean era"),
        ({"guarantees": "red:5"}, "guaranteed 5 GPUs, and there are 4"),
        ({"guarantees": "red"}, "does not tell a team's guarantee"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong, told):
    with pytest.raises(ConfigError, match=told):
        LocalSettings(**wrong)


def test_guarantees_become_part_of_the_recorded_policy():
    settings = LocalSettings(policy="era(model='thesis')", guarantees="red:2")
    assert settings.policy_text.startswith("guaranteed(policy=")


# the database


def test_jobs_and_workers_are_found_again_as_they_were(tmp_path, database):
    kept = database.submit(job(tmp_path))
    record = kept.record.given(Share(2, 64), 5.0)
    database.save([record])
    first, second = database.add_workers(kept.number, [0, 3])
    database.set_started(first)
    database.set_state(second, WorkerState.LEAVING)
    again = ClusterDatabase(tmp_path / "cluster.sqlite")
    assert again.began_s == database.began_s
    assert [(each.file, each.record) for each in again.jobs()] == [(kept.file, record)]
    found = {(each.member, each.slot, each.state, each.is_started) for each in again.workers()}
    assert found == {("w1", 0, WorkerState.IN, True), ("w2", 3, WorkerState.LEAVING, False)}
    again.close()


def test_no_worker_has_the_name_of_another_that_ever_was(tmp_path, database):
    number = database.submit(job(tmp_path)).number
    (first,) = database.add_workers(number, [0])
    database.remove_worker(first)
    (second,) = database.add_workers(number, [0])
    assert (first.member, second.member) == ("w1", "w2")


def test_a_job_that_can_never_fit_is_refused_and_not_kept(tmp_path, database):
    with pytest.raises(ConfigError, match="needs at least 5 workers, and there are 4 GPUs"):
        database.submit(job(tmp_path, min_workers=5, start_workers=5))
    assert database.jobs() == []


def test_a_job_is_cancelled_once_and_only_while_it_is_there(tmp_path, database):
    kept = database.submit(job(tmp_path))
    with pytest.raises(ConfigError, match="Did you mean job"):
        database.cancel("jobs")
    database.cancel("job")
    assert database.cancelled() == {kept.number}
    database.save([kept.record.ended(Phase.CANCELLED, 1.0)])
    with pytest.raises(ConfigError, match="cancelled already"):
        database.cancel("job")


def test_a_name_may_be_used_again_once_its_job_has_ended(tmp_path, database):
    first = database.submit(job(tmp_path))
    with pytest.raises(ConfigError, match="a job named job already"):
        database.submit(job(tmp_path))
    database.save([first.record.ended(Phase.FINISHED, 1.0)])
    assert database.submit(job(tmp_path)).number == 1


def test_a_closed_database_is_unreachable(tmp_path):
    made = ClusterDatabase(tmp_path / "cluster.sqlite", create=True)
    made.close()
    with pytest.raises(CoordinationUnreachable):
        made.jobs()


# commands that are refused before anything starts


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "JOB"], ["status"], ["cancel", "job"], ["logs", "job"], ["down"],
    ],
)  # fmt: skip
def test_without_a_cluster_commands_say_how_to_start_one(tmp_path, words):
    path = str(written(tmp_path, 'command = ["sh"]'))
    given = [word.replace("JOB", path) for word in words]
    done = invoke(["elastic", *given, "--dir", tmp_path / "none"])
    assert (done.exit_code, "garfield elastic up --slots 4" in done.stderr) == (2, True)


def test_a_database_that_cannot_be_read_is_refused_and_left_alone(tmp_path):
    broken = "this is no database, and it is long enough to be one" * 10
    (tmp_path / "cluster.sqlite").write_text(broken)
    for words in (["status"], ["up"], ["down"]):
        done = invoke(["elastic", *words, "--dir", tmp_path])
        assert done.exit_code == 2
        assert "not a database" in done.stderr
    assert (tmp_path / "cluster.sqlite").read_text() == broken


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--slots", "0"], "slots"),
        (["--policy", "erra"], "Did you mean era"),
        (["--decide-s", "-1"], "decide_s"),
    ],
)
def test_up_refuses_settings_before_anything_is_made(tmp_path, flags, told):
    done = invoke(["elastic", "up", "--dir", tmp_path / "new", *flags])
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (tmp_path / "new").exists()


def test_no_daemon_is_found_where_another_process_has_its_pid(tmp_path, database):
    cluster = Cluster(tmp_path)
    assert cluster.daemon() is None
    cluster.set_daemon(database)
    assert cluster.daemon() is not None
    pid, _ = json.loads(database.fact("daemon"))
    database.set_facts({"daemon": json.dumps([pid, "another boot 17"])})
    assert cluster.daemon() is None


# histories


def test_a_history_counts_from_submission_and_a_repeated_event_changes_nothing():
    events = [
        {"event": "submitted", "job": "a", "number": 0, "at_s": 10.0},
        {"event": "workers", "job": "a", "number": 0, "at_s": 12.0, "workers": 2},
        {"event": "submitted", "job": "a", "number": 0, "at_s": 10.0},
        {"event": "training", "job": "a", "number": 0, "at_s": 15.0},
        {"event": "workers", "job": "a", "number": 0, "at_s": 40.0, "workers": 0},
        {"event": "ended", "job": "a", "number": 0, "at_s": 40.0, "phase": "finished",
         "jct_s": 30.0, "queueing_s": 2.0, "rescalings": 1, "why": ""},
        {"event": "submitted", "job": "b", "number": 1, "at_s": 20.0},
        {"event": "decision"},
    ]  # fmt: skip
    first, second = histories(events)
    assert first.workers == [(12.0, 2), (40.0, 0)]
    assert start_up_s([first, second]) == 3.0
    assert (second.phase, second.jct_s) == ("", None)
    assert summary([first, second]) == {
        "jct_s": 30.0, "makespan_s": 30.0, "queueing_s": 2.0, "rescalings": 1.0, "finished": 1,
        "submitted": 2,
    }  # fmt: skip
