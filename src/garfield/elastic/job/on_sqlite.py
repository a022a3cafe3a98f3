"""A job's agreement in an SQLite database: for workers and a controller on one machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from garfield.core.errors import ConfigError, CoordinationUnreachable
from garfield.core.files import as_json
from garfield.elastic.job.coordination import (
    BatchSize,
    CheckpointPointer,
    Generation,
    JobView,
    check_members,
)
from garfield.runs.sqlite_file import SqliteFile

# Facts there is one of are rows of `facts`; what depends on a generation bears its number.
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS generations (number INTEGER PRIMARY KEY, members TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS arrivals (
    member TEXT PRIMARY KEY, number INTEGER NOT NULL, store TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS reports (member TEXT PRIMARY KEY, measured TEXT NOT NULL);
"""
_BEGUN, _BATCH, _CHECKPOINT, _FINISHED = "begun", "batch", "checkpoint", "finished"


class SqliteCoordination:
    """Coordination of one job, in one file. Any number of processes may open it."""

    host = "127.0.0.1"

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        """A controller creates the file; a worker that finds none refuses to begin."""
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise ConfigError(f"{self.path} is no job to join: there is no such file.")
        self._file = SqliteFile(
            self.path, _TABLES, "a job's agreement", unreachable=CoordinationUnreachable
        )

    def read(self) -> JobView:
        with self._file.reading() as database:
            facts = dict(database.execute("SELECT name, value FROM facts"))
            newest = _newest(database)
            rows = database.execute(
                "SELECT member, store FROM arrivals WHERE number = ?", (newest.number,)
            )
            arrived = dict(rows.fetchall())
        return JobView(
            newest,
            int(facts.get(_BEGUN, 0)),
            arrived,
            BatchSize(**json.loads(facts[_BATCH])) if _BATCH in facts else None,
            _pointer(facts.get(_CHECKPOINT)),
            _FINISHED in facts,
        )

    def propose(self, members: Sequence[str], *, after: int, reopen: bool = False) -> bool:
        named = as_json(check_members(members))
        with self._file.writing() as database:
            if _newest(database).number != after or (_fact(database, _FINISHED) and not reopen):
                return False
            database.execute("DELETE FROM facts WHERE name = ?", (_FINISHED,))
            database.execute("INSERT INTO generations VALUES (?, ?)", (after + 1, named))
            database.execute("UPDATE arrivals SET number = ?, store = ''", (after + 1,))
            for (member,) in database.execute("SELECT member FROM arrivals").fetchall():
                if member not in members:
                    database.execute("DELETE FROM arrivals WHERE member = ?", (member,))
            return True

    def arrive(self, number: int, member: str, store: str = "") -> None:
        with self._file.writing() as database:
            if _newest(database).number == number:  # else it has come too late, and is forgotten
                database.execute(
                    "INSERT OR REPLACE INTO arrivals VALUES (?, ?, ?)", (member, number, store)
                )

    def begin(self, number: int) -> bool:
        with self._file.writing() as database:
            if number <= int(_fact(database, _BEGUN) or 0):
                return False
            _set_fact(database, _BEGUN, str(number))
            return True

    def set_batch(self, batch: BatchSize) -> bool:
        with self._file.writing() as database:
            known = _fact(database, _BATCH)
            if known is not None:
                before = BatchSize(**json.loads(known))
                if batch.since_us <= before.since_us:
                    return False
                limits = [most for most in (batch.most, before.most) if most is not None]
                batch = BatchSize(batch.size, batch.since_us, min(limits, default=None))
            _set_fact(database, _BATCH, as_json(asdict(batch)))
            return True

    def move_checkpoint(
        self, pointer: CheckpointPointer, *, after: CheckpointPointer | None
    ) -> bool:
        with self._file.writing() as database:
            begun = int(_fact(database, _BEGUN) or 0)
            if pointer.generation < begun or _pointer(_fact(database, _CHECKPOINT)) != after:
                return False
            _set_fact(database, _CHECKPOINT, as_json(asdict(pointer)))
            return True

    def report(self, member: str, measured: Mapping[str, Any]) -> None:
        with self._file.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO reports VALUES (?, ?)", (member, as_json(measured))
            )

    def reports(self) -> dict[str, dict[str, Any]]:
        with self._file.reading() as database:
            rows = database.execute("SELECT member, measured FROM reports").fetchall()
        return {member: json.loads(measured) for member, measured in rows}

    def finish(self) -> None:
        with self._file.writing() as database:
            _set_fact(database, _FINISHED, "true")

    def close(self) -> None:
        self._file.close()


def _newest(database: Connection) -> Generation:
    row = database.execute(
        "SELECT number, members FROM generations ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return Generation(0, ()) if row is None else Generation(row[0], tuple(json.loads(row[1])))


def _fact(database: Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set_fact(database: Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _pointer(text: str | None) -> CheckpointPointer | None:
    return None if text is None else CheckpointPointer(**json.loads(text))
