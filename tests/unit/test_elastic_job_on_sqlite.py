"""What is SQLite's own: files that are no job, and writers that stay."""

import sqlite3

import pytest

from garfield.core.errors import ConfigError, CoordinationUnreachable
from garfield.elastic.job.coordination import BatchSize, Generation
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.runs import sqlite_file


def test_a_worker_does_not_make_the_job_that_it_joins(tmp_path):
    with pytest.raises(ConfigError, match="no job to join"):
        SqliteCoordination(tmp_path / "job.sqlite", create=False)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "job.sqlite").write_text("a text, and a rather long one at that" * 10)
    with pytest.raises(ConfigError, match="not a database"):
        SqliteCoordination(tmp_path / "job.sqlite")


def test_who_opens_a_new_file_waits_for_another_who_does(tmp_path, monkeypatch):
    other = sqlite3.connect(tmp_path / "job.sqlite", isolation_level=None)
    other.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    other.execute("BEGIN IMMEDIATE")  # SQLite refuses a change of the journal at once
    monkeypatch.setattr(sqlite_file.time, "sleep", lambda _: other.execute("COMMIT"))
    kept = SqliteCoordination(tmp_path / "job.sqlite")
    assert kept.propose(["a"], after=0)
    kept.close()
    other.close()


def test_a_writer_that_stays_makes_it_unreachable_for_writing_only(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.01)
    kept = SqliteCoordination(tmp_path / "job.sqlite")
    kept.propose(["a"], after=0)
    other = sqlite3.connect(tmp_path / "job.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CoordinationUnreachable, match="locked"):
        kept.propose(["a", "b"], after=1)
    assert kept.read().generation == Generation(1, ("a",))
    other.close()
    assert kept.propose(["a", "b"], after=1)
    kept.close()
    with pytest.raises(CoordinationUnreachable):
        kept.read()


@pytest.mark.parametrize("values", [(0, 1), (4, 1, 0)])
def test_a_batch_has_at_least_one_sample(values):
    with pytest.raises(ConfigError, match="at least 1 sample"):
        BatchSize(*values)
