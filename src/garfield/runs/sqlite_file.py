"""An SQLite database that several processes read and write: one way to open it and to change it.

SQLite allows one writer at a time, across processes, and a transaction that has begun to write is
done whole or not at all, also if its process is killed. So a compare-and-set is a transaction.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from garfield.core.errors import ConfigError, RunError

BUSY_S = 5.0
"""How long a writer waits for another one."""
_BUSY = 5
"""SQLITE_BUSY."""
_LOOK_S = 0.005


class SqliteFile:
    """One database. Used by several threads of a process, and by any number of processes."""

    def __init__(self, path: Path, tables: str, keeps: str, *, unreachable: type[RunError]) -> None:
        """`tables` are made if they are not there; `keeps` says what, where that is impossible.

        `unreachable` is raised where it is worth a retry: somebody else is writing, say.
        """
        self.path = path
        self._unreachable = unreachable
        self._lock = threading.Lock()
        try:
            # no isolation level: transactions begin where we say, not where Python thinks
            self._database = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._let_readers_go_on()
            self._database.executescript(tables)
        except sqlite3.Error as problem:
            if _is_busy(problem):
                raise unreachable(f"{path} cannot be used: {problem}.") from None
            raise ConfigError(f"{path} cannot keep {keeps}: {problem}.") from None

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Read as of one moment; `unreachable` is raised if that is impossible now."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """What is read in it stays so until it ends: others' writes wait."""
        return self._transaction("BEGIN IMMEDIATE")

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _let_readers_go_on(self) -> None:
        """Change to a write-ahead log: then readers never wait for a writer.

        SQLite does not wait for others who make the same change: of several processes that open a
        new file, all but one are told at once that it is locked.
        """
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._database.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as problem:
                if not _is_busy(problem) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._database.execute(begin)
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                finally:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
            except sqlite3.Error as problem:
                raise self._unreachable(f"{self.path} cannot be used: {problem}.") from None


def _is_busy(problem: sqlite3.Error) -> bool:
    """Whether others keep the file locked; Python before 3.11 tells that by a text alone."""
    code = getattr(problem, "sqlite_errorcode", None)
    return "locked" in str(problem) if code is None else code & 0xFF == _BUSY
