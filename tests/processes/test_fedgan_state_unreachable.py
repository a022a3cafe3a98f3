"""Databases that cannot be reached: said clearly, waited for, and nothing is lost."""

import os
import signal
import sqlite3
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from garfield.core.errors import ConfigError, MissingDependency, RunError, StateUnreachable
from garfield.fedgan.state import (
    Primary,
    StateDatabase,
    on_postgres,
    on_sqlite,
    open_state_database,
    wait_to_lead,
)
from garfield.fedgan.state.on_postgres import PostgresBackend, without_password
from garfield.fedgan.state.on_sqlite import network_file_system
from garfield.runs import sqlite_file
from tests.fedgan_states import new_run, state, until
from tests.postgres_server import running_postgres

LONG_S = 1000.0


class Waiting:
    """A call in a thread, which waits for a database."""

    def __init__(self, call):
        self.failure = None
        self._thread = threading.Thread(target=self._run, args=[call])
        self._thread.start()

    def _run(self, call):
        try:
            call()
        except Exception as failure:
            self.failure = failure

    def joined(self):
        self._thread.join()
        return self.failure


def is_told_of(caplog, text):
    return lambda: text in caplog.text


# -- SQLite ---------------------------------------------------------------------------------------


def test_a_commit_waits_for_a_file_that_somebody_else_writes(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.01)
    path = tmp_path / "state.sqlite"
    database = open_state_database(path, "run")
    other = sqlite3.connect(path, isolation_level=None)
    with Primary(database, database.acquire("server-0", LONG_S), patience_s=100) as primary:
        primary.commit(state(0))
        other.execute("BEGIN IMMEDIATE")
        committing = Waiting(lambda: primary.commit(state(1)))
        until(is_told_of(caplog, "Waiting up to 100 s for it"), "a word of it")
        assert database.latest().round == 0  # reading goes on
        other.execute("ROLLBACK")
        assert committing.joined() is None
        assert database.latest().round == 1
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateUnreachable, match=r"another|locked"):
            database.another().commit(primary.token, state(2))
        other.execute("ROLLBACK")
    other.close()
    database.close()


def test_after_the_deadline_it_is_an_error_that_says_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.01)
    path = tmp_path / "state.sqlite"
    database = open_state_database(path, "run")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    said = r"locked. It was tried for 0.05 s. What was committed before is kept: resume when"
    with pytest.raises(StateUnreachable, match=said):
        wait_to_lead(database, "server-0", lease_s=1, patience_s=0.05)
    other.close()
    database.close()


def test_sqlite_serves_one_host_and_says_so(tmp_path, monkeypatch):
    database = open_state_database(tmp_path / "state.sqlite", "run")
    assert database.serves_one_host
    database.close()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/export {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(on_sqlite, "_MOUNTS", mounts)
    with pytest.raises(ConfigError, match=r"nfs4.*serves the servers of one host.*postgresql://"):
        open_state_database(tmp_path / "other" / "state.sqlite", "run")
    assert not (tmp_path / "other").exists()


def test_of_nested_mounts_the_innermost_counts():
    mounts = "h:/ /data nfs rw\n/dev/b /data/local\\040disk ext4 rw\nshort\n/dev/a / ext4 rw"
    assert network_file_system(Path("/data/run/s"), mounts) == "nfs"
    assert network_file_system(Path("/data/local disk/s"), mounts) is None
    assert network_file_system(Path("/database/s"), mounts) is None


@pytest.mark.parametrize(
    ("where", "run", "said"),
    [
        ("mysql://host/db", "run", "SQLite file or in PostgreSQL, not in mysql"),
        ("state.sqlite", "", "needs a name"),
        ("postgresql://me:secret@host/db?a=b", "run", "postgresql://me@host/db is no address"),
    ],
)
def test_what_is_no_database_is_refused(where, run, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said) as refused:
        open_state_database(where, run)
    assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "state.sqlite").write_text("a text, and a rather long one at that" * 10)
    with pytest.raises(ConfigError, match=r"cannot keep a training's state: .*not a database"):
        open_state_database(tmp_path / "state.sqlite", "run")


# -- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server


def test_a_commit_waits_for_a_server_that_is_away_and_nothing_is_lost(postgres, caplog):
    database = open_state_database(postgres.url(), new_run())
    assert not database.serves_one_host
    with Primary(database, database.acquire("server-0", LONG_S), patience_s=1000) as primary:
        primary.commit(state(0))
        postgres.stop()
        committing = Waiting(lambda: primary.commit(state(1)))
        until(is_told_of(caplog, "Waiting up to 1000 s for it"), "a word of it")
        postgres.start()
        assert committing.joined() is None
        assert database.latest().round == 1
        assert "answers again" in caplog.text
    database.close()


def test_a_server_that_is_not_there_is_an_error_after_the_deadline(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql://me:secret@/db?host={tmp_path}"
    with pytest.raises(StateUnreachable, match=r"postgresql://me@/db cannot be used: .*") as told:
        open_state_database(url, "run")
    assert "secret" not in str(told.value)


def test_a_commit_whose_end_was_not_heard_is_not_done_twice(postgres, monkeypatch):
    psycopg = pytest.importorskip("psycopg")
    database = open_state_database(postgres.url(), new_run())
    token = database.acquire("server-0", LONG_S)
    database.commit(token, state(0))
    told, real = [], PostgresBackend._ended_in_time

    @contextmanager
    def breaks_at_the_end(self, connection):
        """The server has committed, and the connection breaks before that is heard."""
        with real(self, connection):
            yield
        if not told:
            told.append(True)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresBackend, "_ended_in_time", breaks_at_the_end)
    with Primary(database, token, patience_s=100) as primary:
        primary.commit(state(1))
    assert told
    assert [found.round for found in database.history()] == [1]
    assert database.latest().round == 1
    database.close()


def test_a_server_that_is_frozen_is_given_up_in_time_and_found_again(postgres):
    backend = PostgresBackend(postgres.url(), call_s=1.0)
    database = StateDatabase(backend, new_run())
    token = database.acquire("server-0", LONG_S)
    with backend.reading() as sql:
        [(pid,)] = sql.rows("SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StateUnreachable, match="cannot be used"):
            database.commit(token, state(0))
    finally:
        os.kill(pid, signal.SIGCONT)
    database.commit(token, state(0))
    assert database.latest().round == 0
    database.close()
    until(lambda: not psutil.pid_exists(pid), "the end of the frozen one")


def test_a_client_that_says_nothing_in_its_transaction_holds_nobody_up(postgres, monkeypatch):
    monkeypatch.setattr(
        on_postgres, "_SESSION", on_postgres._SESSION.replace(
            f"transaction_session_timeout = '{on_postgres._IDLE_S}s'",
            "transaction_session_timeout = '200ms'",
        )
    )  # fmt: skip
    first = open_state_database(postgres.url(), new_run())
    second = first.another()
    token = first.acquire("server-0", LONG_S)

    def say_nothing_in_between():
        with first._backend.writing() as sql:
            first._fence(sql, token, "")  # the row is ours, and nobody else's until the end
            second.renew(token)  # waits until the server has ended the other's transaction
            first._extend(sql, token)

    with pytest.raises(StateUnreachable):
        say_nothing_in_between()
    first.commit(token, state(0))
    first.close()
    second.close()


def test_a_statement_that_the_server_refuses_is_no_matter_of_waiting(postgres):
    owner = open_state_database(postgres.url(), new_run())
    with owner._backend.writing() as sql:
        sql.run("CREATE ROLE reader LOGIN")
        sql.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader = open_state_database(postgres.url(user="reader"), owner.run)
    assert reader.latest() is None
    with pytest.raises(RunError, match="refuses a statement: permission denied") as told:
        wait_to_lead(reader, "server-0", lease_s=1, patience_s=1000)
    assert not isinstance(told.value, StateUnreachable)
    reader.close()
    owner.close()


def test_a_database_that_was_closed_says_so(postgres, tmp_path):
    for where in (postgres.url(), tmp_path / "state.sqlite"):
        database = open_state_database(where, new_run())
        database.close()
        with pytest.raises(StateUnreachable, match="closed"):
            database.latest()


def test_without_psycopg_the_command_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency, match=r"pip install 'garfield-ml\[fedgan-postgres\]'"):
        open_state_database("postgresql://host/db", "run")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@db:5432/run", "postgresql://me@db:5432/run"),
        ("postgresql://me:p@ss:w@db/run", "postgresql://me@db/run"),
        ("postgresql:///run?password=a@b", "postgresql:///run"),
        ("postgresql://db/run", "postgresql://db/run"),
    ],
)
def test_no_password_is_shown(url, shown):
    assert without_password(url) == shown
