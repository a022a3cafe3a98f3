"""A job's agreement in an SQLite database: for workers and a controller on one machine.

SQLite allows one writer at a time, across processes, and a transaction that has begun to write is
done whole or not at all, also if its process is killed. So a compare-and-set is a transaction.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError
from garfield.core.files import as_json
from garfield.elastic.job.coordination import (
    BatchSize,
    CheckpointPointer,
    CoordinationUnreachable,
    Generation,
    JobView,
    check_members,
)

BUSY_S = 5.0
"""How long a writer waits for another one."""

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
        self._lock = threading.Lock()
        try:
            # no isolation level: transactions begin where we say, not where Python thinks
            self._database = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode=WAL")  # readers never wait for a writer
            self._database.executescript(_TABLES)
        except sqlite3.Error as problem:
            raise ConfigError(f"{self.path} cannot keep a job's agreement: {problem}.") from None

    def read(self) -> JobView:
        with self._transaction("BEGIN"):
            facts = dict(self._database.execute("SELECT name, value FROM facts"))
            newest = self._newest()
            rows = self._database.execute(
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
        with self._writing():
            if self._newest().number != after or (self._fact(_FINISHED) and not reopen):
                return False
            self._database.execute("DELETE FROM facts WHERE name = ?", (_FINISHED,))
            self._database.execute("INSERT INTO generations VALUES (?, ?)", (after + 1, named))
            self._database.execute("UPDATE arrivals SET number = ?, store = ''", (after + 1,))
            for (member,) in self._database.execute("SELECT member FROM arrivals").fetchall():
                if member not in members:
                    self._database.execute("DELETE FROM arrivals WHERE member = ?", (member,))
            return True

    def arrive(self, number: int, member: str, store: str = "") -> None:
        with self._writing():
            if self._newest().number == number:  # else it has come too late, and is forgotten
                self._database.execute(
                    "INSERT OR REPLACE INTO arrivals VALUES (?, ?, ?)", (member, number, store)
                )

    def begin(self, number: int) -> bool:
        with self._writing():
            if number <= int(self._fact(_BEGUN) or 0):
                return False
            self._set_fact(_BEGUN, str(number))
            return True

    def set_batch(self, batch: BatchSize) -> bool:
        with self._writing():
            known = self._fact(_BATCH)
            if known is not None:
                before = BatchSize(**json.loads(known))
                if batch.since_us <= before.since_us:
                    return False
                limits = [most for most in (batch.most, before.most) if most is not None]
                batch = BatchSize(batch.size, batch.since_us, min(limits, default=None))
            self._set_fact(_BATCH, as_json(asdict(batch)))
            return True

    def move_checkpoint(
        self, pointer: CheckpointPointer, *, after: CheckpointPointer | None
    ) -> bool:
        with self._writing():
            begun = int(self._fact(_BEGUN) or 0)
            if pointer.generation < begun or _pointer(self._fact(_CHECKPOINT)) != after:
                return False
            self._set_fact(_CHECKPOINT, as_json(asdict(pointer)))
            return True

    def report(self, member: str, measured: Mapping[str, Any]) -> None:
        with self._writing():
            self._database.execute(
                "INSERT OR REPLACE INTO reports VALUES (?, ?)", (member, as_json(measured))
            )

    def reports(self) -> dict[str, dict[str, Any]]:
        with self._transaction("BEGIN"):
            rows = self._database.execute("SELECT member, measured FROM reports").fetchall()
        return {member: json.loads(measured) for member, measured in rows}

    def finish(self) -> None:
        with self._writing():
            self._set_fact(_FINISHED, "true")

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _newest(self) -> Generation:
        row = self._database.execute(
            "SELECT number, members FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return Generation(0, ()) if row is None else Generation(row[0], tuple(json.loads(row[1])))

    def _fact(self, name: str) -> str | None:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set_fact(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _writing(self) -> AbstractContextManager[None]:
        """What is read in it stays so until it ends: others' writes wait."""
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock:
            try:
                self._database.execute(begin)
                try:
                    yield
                    self._database.execute("COMMIT")
                finally:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
            except sqlite3.Error as problem:
                raise CoordinationUnreachable(f"{self.path} cannot be used: {problem}.") from None


def _pointer(text: str | None) -> CheckpointPointer | None:
    return None if text is None else CheckpointPointer(**json.loads(text))
