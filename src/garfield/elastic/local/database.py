"""What a local cluster keeps: its jobs with their records, and which worker has which slot.

The daemon alone changes records and workers. Commands add jobs and ask to cancel them, whether a
daemon runs or not, so that none is lost while it does not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from garfield.core.config import made, values_of
from garfield.core.errors import ConfigError, CoordinationUnreachable, UnknownName
from garfield.core.files import as_json
from garfield.elastic.control.record import JobRecord, record_of, submitted
from garfield.elastic.local.job_file import JobFile
from garfield.runs.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, file TEXT NOT NULL, record TEXT NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0, members INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS workers (
    job INTEGER NOT NULL, member TEXT NOT NULL, slot INTEGER NOT NULL, state TEXT NOT NULL,
    started INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (job, member)
);
"""
_BEGAN, _SLOTS = "began", "slots"


class WorkerState(str, Enum):
    """What is known of a worker that has a slot."""

    IN = "in"
    """It is to be in the job."""
    LEAVING = "leaving"
    """It is to go."""
    LOST = "lost"
    """It has ended, and nobody had asked it to."""


@dataclass(frozen=True)
class KeptJob:
    """A job as it is kept."""

    number: int
    """Its place in the order of arrival."""
    file: JobFile
    record: JobRecord
    is_cancelled: bool
    """Whether somebody has asked for its end."""


@dataclass(frozen=True)
class KeptWorker:
    """A worker as it is kept."""

    job: int
    member: str
    slot: int
    state: WorkerState
    is_started: bool
    """Whether its process is known to have been started."""


class ClusterDatabase:
    """The state of one local cluster, in one file."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.is_file():
            raise ConfigError(
                f"There is no cluster in {path.parent}. Start one: garfield elastic up --slots 4"
            )
        self._file = SqliteFile(
            path, _TABLES, "a cluster's state", unreachable=CoordinationUnreachable
        )
        if create:
            with self._file.writing() as database:
                database.execute(
                    "INSERT OR IGNORE INTO facts VALUES (?, ?)", (_BEGAN, str(time.time()))
                )
        self.began_s = float(self.fact(_BEGAN) or 0.0)
        """When it was first started, in seconds since 1970: the cluster's clock begins there."""

    def now_s(self) -> float:
        """Seconds since the cluster was first started."""
        return time.time() - self.began_s

    def fact(self, name: str) -> str | None:
        """What was last set."""
        with self._file.reading() as database:
            row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_facts(self, facts: Mapping[str, str]) -> None:
        with self._file.writing() as database:
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    @property
    def slots(self) -> int:
        """How many there are."""
        return int(self.fact(_SLOTS) or 0)

    @slots.setter
    def slots(self, slots: int) -> None:
        self.set_facts({_SLOTS: str(slots)})

    def jobs(self, after: int = -1) -> list[KeptJob]:
        """All jobs there ever were, by arrival, from the one after that number on."""
        with self._file.reading() as database:
            return _jobs(database, after)

    def cancelled(self) -> set[int]:
        """Numbers of jobs that somebody has asked to cancel, ended or not."""
        with self._file.reading() as database:
            rows = database.execute("SELECT number FROM jobs WHERE cancelled = 1")
            return {number for (number,) in rows}

    def submit(self, file: JobFile) -> KeptJob:
        """Add a job at the end of the queue; ConfigError if it could never run here."""
        slots = self.slots
        with self._file.writing() as database:
            others = [job.record for job in _jobs(database)]
            record = submitted(file.name, file.request, others, slots, self.now_s())
            row = (record.job.arrival, file.name, as_json(values_of(file)), as_json(record))
            database.execute(
                "INSERT INTO jobs (number, name, file, record) VALUES (?, ?, ?, ?)", row
            )
        return KeptJob(record.job.arrival, file, record, False)

    def cancel(self, name: str) -> KeptJob:
        """Ask for the end of a job; ConfigError if there is none to end."""
        with self._file.writing() as database:
            job = newest(_jobs(database), name)
            if not job.record.is_active:
                raise ConfigError(f"{name} has {job.record.phase.value} already.")
            database.execute("UPDATE jobs SET cancelled = 1 WHERE number = ?", (job.number,))
        return job

    def save(self, records: Iterable[JobRecord]) -> None:
        """Keep these records in the place of those before, all or none."""
        rows = [(as_json(record), record.job.arrival) for record in records]
        with self._file.writing() as database:
            database.executemany("UPDATE jobs SET record = ? WHERE number = ?", rows)

    def workers(self) -> list[KeptWorker]:
        """All workers that have slots."""
        with self._file.reading() as database:
            rows = database.execute("SELECT job, member, slot, state, started FROM workers")
            return [
                KeptWorker(job, member, slot, WorkerState(state), bool(started))
                for job, member, slot, state, started in rows
            ]

    def add_workers(self, job: int, slots: Iterable[int]) -> list[KeptWorker]:
        """Reserve slots for new workers, with names that no other of the job ever had."""
        found = []
        with self._file.writing() as database:
            select = "SELECT members FROM jobs WHERE number = ?"
            before = int(database.execute(select, (job,)).fetchone()[0])
            for count, slot in enumerate(slots, before + 1):
                worker = KeptWorker(job, f"w{count}", slot, WorkerState.IN, False)
                database.execute(
                    "INSERT INTO workers (job, member, slot, state) VALUES (?, ?, ?, ?)",
                    (job, worker.member, slot, worker.state.value),
                )
                database.execute("UPDATE jobs SET members = ? WHERE number = ?", (count, job))
                found.append(worker)
        return found

    def set_started(self, worker: KeptWorker) -> None:
        """Note that its process has been started."""
        self._change("UPDATE workers SET started = 1 WHERE job = ? AND member = ?", worker)

    def set_state(self, worker: KeptWorker, state: WorkerState) -> None:
        self._change(
            f"UPDATE workers SET state = '{state.value}' WHERE job = ? AND member = ?", worker
        )

    def remove_worker(self, worker: KeptWorker) -> None:
        """Free its slot."""
        self._change("DELETE FROM workers WHERE job = ? AND member = ?", worker)

    def close(self) -> None:
        self._file.close()

    def _change(self, statement: str, worker: KeptWorker) -> None:
        with self._file.writing() as database:
            database.execute(statement, (worker.job, worker.member))


def newest(jobs: Iterable[KeptJob], name: str) -> KeptJob:
    """The last job of that name; UnknownName if there is none."""
    known = list(jobs)
    found = [job for job in known if job.file.name == name]
    if not found:
        raise UnknownName("a job", name, {job.file.name for job in known})
    return found[-1]


def _jobs(database: Connection, after: int = -1) -> list[KeptJob]:
    rows = database.execute(
        "SELECT number, file, record, cancelled FROM jobs WHERE number > ? ORDER BY number",
        (after,),
    )
    return [
        KeptJob(number, _file(json.loads(file)), record_of(json.loads(record)), bool(cancelled))
        for number, file, record, cancelled in rows
    ]


def _file(told: dict[str, Any]) -> JobFile:
    return made(JobFile, told)
